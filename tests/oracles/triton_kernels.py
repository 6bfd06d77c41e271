"""Kernels whose gfx950 code another compiler makes: Triton's instruction choices, not ours.

Importing this module needs triton; compiling needs no GPU.
"""

import triton
import triton.language as tl

_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def vector_add(x, y, out, count, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] in float32, i < count."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < count
    tl.store(out + index, tl.load(x + index, mask) + tl.load(y + index, mask), mask)


@triton.jit
def rms_norm(x, weight, out, columns, epsilon, BLOCK: tl.constexpr):
    """out[row] = x[row] / sqrt(mean(x[row]^2) + epsilon) * weight; one program a row, bf16."""
    row = tl.program_id(0).to(tl.int64) * columns
    square_sum = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, columns, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row + column, column < columns, other=0.0).to(tl.float32)
        square_sum += value * value
    inverse = tl.rsqrt(tl.sum(square_sum, 0) / columns + epsilon)
    for begin in range(0, columns, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        mask = column < columns
        value = tl.load(x + row + column, mask, other=0.0).to(tl.float32)
        scaled = value * inverse * tl.load(weight + column, mask, other=0.0).to(tl.float32)
        tl.store(out + row + column, scaled.to(tl.bfloat16), mask)


@triton.jit
def _sees(query, key, seqlen_q, seqlen_k, CAUSAL: tl.constexpr):
    """Whether query sees key (broadcast); causality is aligned to the bottom right corner."""
    visible = (query < seqlen_q) & (key < seqlen_k)
    if CAUSAL:
        visible = visible & (key <= query + seqlen_k - seqlen_q)
    return visible


@triton.jit
def attention_dk_dv(
    q, k, v, dout, lse, delta, dq, dk, dv,
    seqlen_q, seqlen_k, nhead, scale,
    HDIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dk and dv of one key block of one head; adds that block's share to dq atomically.

    q, k, v, dout, dk, dv: bf16 [batch, seqlen, nhead, HDIM] contiguous; dq: fp32, likewise;
    lse, delta: fp32 [batch, nhead, seqlen_q]. Grid (key blocks, nhead, batch).
    """
    head = tl.program_id(1)
    batch = tl.program_id(2)
    row_stride = nhead * HDIM
    base_q = batch * seqlen_q * row_stride + head * HDIM
    base_k = batch * seqlen_k * row_stride + head * HDIM
    base_row = (batch * nhead + head) * seqlen_q

    dim = tl.arange(0, HDIM)
    key = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    at_key = base_k + key[:, None] * row_stride + dim[None, :]
    key_mask = key[:, None] < seqlen_k
    k_tile = tl.load(k + at_key, key_mask, other=0.0)
    v_tile = tl.load(v + at_key, key_mask, other=0.0)
    dk_tile = tl.zeros([BLOCK_K, HDIM], tl.float32)
    dv_tile = tl.zeros([BLOCK_K, HDIM], tl.float32)

    first = 0
    if CAUSAL:
        first = tl.maximum(tl.program_id(0) * BLOCK_K - (seqlen_k - seqlen_q), 0)
        first = first // BLOCK_Q * BLOCK_Q
    for begin in range(first, seqlen_q, BLOCK_Q):
        query = begin + tl.arange(0, BLOCK_Q)
        row_mask = query < seqlen_q
        at_query = base_q + query[:, None] * row_stride + dim[None, :]
        q_tile = tl.load(q + at_query, row_mask[:, None], other=0.0)
        dout_tile = tl.load(dout + at_query, row_mask[:, None], other=0.0)
        row_lse = tl.load(lse + base_row + query, row_mask, other=0.0)
        row_delta = tl.load(delta + base_row + query, row_mask, other=0.0)

        # Transposed scores, so that p and ds are the left operands of dv and dk as they stand.
        score = tl.dot(k_tile, tl.trans(q_tile))
        p = tl.exp2((score * scale - row_lse[None, :]) * _LOG2E)
        p = tl.where(_sees(query[None, :], key[:, None], seqlen_q, seqlen_k, CAUSAL), p, 0.0)
        dv_tile = tl.dot(p.to(tl.bfloat16), dout_tile, dv_tile)
        dp = tl.dot(v_tile, tl.trans(dout_tile))
        ds = (p * (dp - row_delta[None, :])).to(tl.bfloat16)
        dk_tile = tl.dot(ds, q_tile, dk_tile)
        dq_tile = tl.dot(tl.trans(ds), k_tile) * scale
        tl.atomic_add(dq + at_query, dq_tile, row_mask[:, None], sem="relaxed")

    tl.store(dk + at_key, (dk_tile * scale).to(tl.bfloat16), key_mask)
    tl.store(dv + at_key, dv_tile.to(tl.bfloat16), key_mask)


@triton.jit
def attention_dq(
    q, k, v, dout, lse, delta, dq,
    seqlen_q, seqlen_k, nhead, scale,
    HDIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dq (bf16) of one query block of one head. Arguments as attention_dk_dv.

    Grid (query blocks, nhead, batch).
    """
    head = tl.program_id(1)
    batch = tl.program_id(2)
    row_stride = nhead * HDIM
    base_q = batch * seqlen_q * row_stride + head * HDIM
    base_k = batch * seqlen_k * row_stride + head * HDIM
    base_row = (batch * nhead + head) * seqlen_q

    dim = tl.arange(0, HDIM)
    query = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    row_mask = query < seqlen_q
    at_query = base_q + query[:, None] * row_stride + dim[None, :]
    q_tile = tl.load(q + at_query, row_mask[:, None], other=0.0)
    dout_tile = tl.load(dout + at_query, row_mask[:, None], other=0.0)
    row_lse = tl.load(lse + base_row + query, row_mask, other=0.0)
    row_delta = tl.load(delta + base_row + query, row_mask, other=0.0)
    dq_tile = tl.zeros([BLOCK_Q, HDIM], tl.float32)

    last = seqlen_k
    if CAUSAL:
        last = tl.minimum(seqlen_k, tl.program_id(0) * BLOCK_Q + BLOCK_Q + seqlen_k - seqlen_q)
    for begin in range(0, last, BLOCK_K):
        key = begin + tl.arange(0, BLOCK_K)
        key_mask = key[:, None] < seqlen_k
        at_key = base_k + key[:, None] * row_stride + dim[None, :]
        k_tile = tl.load(k + at_key, key_mask, other=0.0)
        v_tile = tl.load(v + at_key, key_mask, other=0.0)
        score = tl.dot(q_tile, tl.trans(k_tile))
        p = tl.exp2((score * scale - row_lse[:, None]) * _LOG2E)
        p = tl.where(_sees(query[:, None], key[None, :], seqlen_q, seqlen_k, CAUSAL), p, 0.0)
        dp = tl.dot(dout_tile, tl.trans(v_tile))
        ds = (p * (dp - row_delta[:, None])).to(tl.bfloat16)
        dq_tile = tl.dot(ds, k_tile, dq_tile)

    tl.store(dq + at_query, (dq_tile * scale).to(tl.bfloat16), row_mask[:, None])


@triton.jit
def attention_forward(
    q, k, v, out, lse,
    seqlen_q, seqlen_k, nhead, scale,
    HDIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """out (bf16) and lse (fp32) of one query block of one head, by online softmax.

    Arguments as attention_dk_dv; every query must see a key. Grid (query blocks, nhead, batch).
    """
    head = tl.program_id(1)
    batch = tl.program_id(2)
    row_stride = nhead * HDIM
    base_q = batch * seqlen_q * row_stride + head * HDIM
    base_k = batch * seqlen_k * row_stride + head * HDIM
    base_row = (batch * nhead + head) * seqlen_q

    dim = tl.arange(0, HDIM)
    query = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    row_mask = query < seqlen_q
    at_query = base_q + query[:, None] * row_stride + dim[None, :]
    q_tile = tl.load(q + at_query, row_mask[:, None], other=0.0)
    maximum = tl.full([BLOCK_Q], -1e30, tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    out_tile = tl.zeros([BLOCK_Q, HDIM], tl.float32)

    last = seqlen_k
    if CAUSAL:
        last = tl.minimum(seqlen_k, tl.program_id(0) * BLOCK_Q + BLOCK_Q + seqlen_k - seqlen_q)
    for begin in range(0, last, BLOCK_K):
        key = begin + tl.arange(0, BLOCK_K)
        key_mask = key[:, None] < seqlen_k
        at_key = base_k + key[:, None] * row_stride + dim[None, :]
        k_tile = tl.load(k + at_key, key_mask, other=0.0)
        v_tile = tl.load(v + at_key, key_mask, other=0.0)
        score = tl.dot(q_tile, tl.trans(k_tile)) * (scale * _LOG2E)
        visible = _sees(query[:, None], key[None, :], seqlen_q, seqlen_k, CAUSAL)
        score = tl.where(visible, score, -1e30)
        new_maximum = tl.maximum(maximum, tl.max(score, 1))
        p = tl.exp2(score - new_maximum[:, None])
        rescale = tl.exp2(maximum - new_maximum)
        total = total * rescale + tl.sum(p, 1)
        out_tile = tl.dot(p.to(tl.bfloat16), v_tile, out_tile * rescale[:, None])
        maximum = new_maximum

    tl.store(out + at_query, (out_tile / total[:, None]).to(tl.bfloat16), row_mask[:, None])
    tl.store(lse + base_row + query, (maximum + tl.log2(total)) / _LOG2E, row_mask)


@triton.jit
def gemm(
    a, b, c, rows, columns, depth,
    SUM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c[rows, columns] = a[rows, depth] @ b[depth, columns], summed in the type SUM.

    depth must be a multiple of BLOCK_K. Grid (blocks of rows, blocks of columns).
    """
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask, column_mask = row[:, None] < rows, column[None, :] < columns
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros([BLOCK_M, BLOCK_N], SUM)
    for begin in range(0, depth, BLOCK_K):
        at_a = row[:, None] * depth + (begin + inner)[None, :]
        at_b = (begin + inner)[:, None] * columns + column[None, :]
        a_tile = tl.load(a + at_a, row_mask, other=0)
        b_tile = tl.load(b + at_b, column_mask, other=0)
        total = tl.dot(a_tile, b_tile, total, out_dtype=SUM)
    at_c = row[:, None] * columns + column[None, :]
    tl.store(c + at_c, total.to(c.dtype.element_ty), row_mask & column_mask)
