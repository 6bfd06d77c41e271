"""Cases of sparse MLA, their inputs, and runs of its forward and backward through the gate."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import mha_sink
from mha_sink import sparse_reference
from mha_sink.testing.cases import SINK_OFFSETS
from mha_sink.testing.check import Expected, poisoned_workspace
from mha_sink.testing.covering import pairwise
from mha_sink.testing.gate import GateResult, check
from mha_sink.testing.inputs import GuardedTensor, spread_sinks
from mha_sink.testing.sparse_indices import uniform_indices, window_pool_indices

HEAD_DIM = 512

SparseMlaBwd = Callable[..., tuple[Tensor, Tensor, Tensor | None]]


@dataclass(frozen=True)
class SparseCase:
    """One shape of sparse MLA.

    Attributes:
        tokens: T, query tokens.
        nhead: H, query heads.
        topk: TOPK, slots a token.
        num_pool: rows of kv beyond the T of the tokens themselves.
        window: None: uniform indices with a tenth of the slots empty; else those of
            `window_pool_indices` with this window.
        r_chunk: R_CHUNK, slots that the backward takes at a time; None: all.
        sink_offsets: each head's sink is its mean sink-free lse plus one of these, in turn; empty:
            no sink.
    """

    name: str
    tokens: int
    nhead: int
    topk: int
    num_pool: int = 0
    window: int | None = None
    r_chunk: int | None = None
    sink_offsets: tuple[float, ...] = SINK_OFFSETS
    dtype: str = "bfloat16"

    @property
    def scale(self) -> float:
        """The default factor on the scores."""
        return float(HEAD_DIM**-0.5)

    @property
    def num_kv(self) -> int:
        """Rows of kv."""
        return self.tokens + self.num_pool

    def indices(self, seed: int = 0) -> Tensor:
        """int32 [T, TOPK] of this case."""
        if self.window is None:
            return uniform_indices(self.tokens, self.topk, self.num_kv, seed=seed)
        return window_pool_indices(
            self.tokens, self.topk, window=self.window, num_pool=self.num_pool, seed=seed
        )

    def __str__(self) -> str:
        return self.name


# The shapes that the published tests run.
PUBLISHED: tuple[SparseCase, ...] = (
    SparseCase("h64", 128, 64, 128),
    SparseCase("h128", 128, 128, 128),
    SparseCase("h128-pool", 128, 128, 128, num_pool=64),
    SparseCase("h64-no-sink", 128, 64, 128, sink_offsets=()),
    SparseCase("h128-pool-chunked", 128, 128, 128, num_pool=64, r_chunk=64),
)

# The acceptance grid: every combination, or pairs of values.
TOKENS = (1, 63, 128, 300)
HEADS = (16, 64, 128)
TOPKS = (32, 128, 512)
POOL = (False, True)
WINDOW = (False, True)
CHUNKED = (False, True)
SINKS = {
    "spread": SINK_OFFSETS,
    "none": (),
    "inf": (-torch.inf, 0.0, torch.inf, -2.0),
    **{f"{offset:+.0f}": (offset,) for offset in SINK_OFFSETS},
}
DTYPES = ("bfloat16", "float16")
AXES: tuple[Sequence[Any], ...] = (
    TOKENS, HEADS, TOPKS, POOL, WINDOW, CHUNKED, tuple(SINKS), DTYPES,
)  # fmt: skip


def full_sparse_grid() -> list[SparseCase]:
    """Every combination of the acceptance grid."""
    return [_grid_case(*values) for values in itertools.product(*AXES)]


def pairwise_sparse_grid() -> list[SparseCase]:
    """A sample of `full_sparse_grid` in which every pair of values of two axes occurs."""
    return [_grid_case(*values) for values in pairwise(AXES)]


def _grid_case(
    tokens: int, nhead: int, topk: int, pool: bool, window: bool, chunked: bool, sink: str,
    dtype: str,
) -> SparseCase:  # fmt: skip
    num_pool = topk if pool else 0
    name = (
        f"t{tokens}-h{nhead}-topk{topk}-{'pool' if pool else 'own'}-"
        f"{'window' if window else 'uniform'}{'-chunked' if chunked else ''}-sink{sink}-{dtype}"
    )
    return SparseCase(
        name, tokens, nhead, topk, num_pool,
        window=None if not window else topk // 4 if pool else topk,
        r_chunk=max(32, topk // 4) if chunked else None,
        sink_offsets=SINKS[sink], dtype=dtype,
    )  # fmt: skip


@dataclass(frozen=True)
class SparseInputs:
    """What a backward call takes. `o` and `lse` come from `sparse_reference.mixed`."""

    case: SparseCase
    q: Tensor
    kv: Tensor
    do: Tensor
    o: Tensor
    lse: Tensor
    topk_indices: Tensor
    sink: Tensor | None


def make_sparse_inputs(
    case: SparseCase,
    seed: int = 0,
    topk_indices: Tensor | None = None,
    sink: Tensor | None = None,
) -> SparseInputs:
    """Normally distributed q, kv, do of a case; the sink of each head set apart from its lse.

    Args:
        case: the shape.
        seed: of all that is drawn.
        topk_indices: replaces those of the case.
        sink: [H], float32, replaces that of the case.
    """
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, case.dtype)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, HEAD_DIM, generator=generator).to(dtype)

    q, do = normal(case.tokens, case.nhead), normal(case.tokens, case.nhead)
    kv = normal(case.num_kv)
    indices = case.indices(seed) if topk_indices is None else topk_indices
    if sink is None and case.sink_offsets:
        lse = sparse_reference.mixed(q, kv, indices, scale=case.scale).lse
        sink = spread_sinks(lse.T[None].double(), case.sink_offsets)[0]
    o, lse = sparse_reference.mixed(q, kv, indices, sink, scale=case.scale)
    return SparseInputs(case, q, kv, do, o, lse, indices, sink)


def expected_sparse_bwd(inputs: SparseInputs) -> Expected:
    """dq, dkv and, with a sink, d_sink of float64 and of `sparse_reference.mixed_bwd`."""
    q, kv, do, sink = inputs.q, inputs.kv, inputs.do, inputs.sink
    indices, scale = inputs.topk_indices, inputs.case.scale
    x64 = sparse_reference.definition_bwd(do, q, kv, indices, sink, scale=scale)
    xr = sparse_reference.mixed_bwd(do, q, kv, inputs.o, inputs.lse, indices, sink, scale=scale)
    return Expected(_given(x64), _given(xr))


def expected_sparse_fwd(inputs: SparseInputs) -> Expected:
    """`o` and `lse` of float64 and, as the inputs hold them, of `sparse_reference.mixed`."""
    x64 = sparse_reference.definition(
        inputs.q, inputs.kv, inputs.topk_indices, inputs.sink, scale=inputs.case.scale
    )
    return Expected({"o": x64.out, "lse": x64.lse}, {"o": inputs.o, "lse": inputs.lse})


def _given(gradients: sparse_reference.Gradients) -> dict[str, Tensor]:
    return {name: x for name, x in gradients._asdict().items() if x is not None}


@contextmanager
def poisoned() -> Iterator[None]:
    """Within it, what `torch.empty` and the workspace callback return holds NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    fill_before = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        with poisoned_workspace():
            yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = fill_before  # type: ignore[attr-defined]


def run_sparse_bwd(inputs: SparseInputs, bwd: SparseMlaBwd | None = None) -> dict[str, Tensor]:
    """One call of the backward with poisoned outputs and workspace and guarded inputs.

    Args:
        inputs: what is computed.
        bwd: what is run, `mha_sink.sparse_mla_bwd_dsv4` by default.

    Returns:
        dq, dkv and, with a sink, d_sink.

    Raises:
        AssertionError: an input, or a byte around it, was written.
    """
    given = {"q": inputs.q, "kv": inputs.kv, "do": inputs.do, "o": inputs.o, "lse": inputs.lse,
             "topk_indices": inputs.topk_indices, "attn_sink": inputs.sink}  # fmt: skip
    with _guarded(given) as views, poisoned():
        dq, dkv, d_sink = (bwd or mha_sink.sparse_mla_bwd_dsv4)(
            **views, scale=inputs.case.scale, R_CHUNK=inputs.case.r_chunk
        )
    written = {"dq": dq, "dkv": dkv}
    assert (d_sink is None) == (inputs.sink is None)
    return written if d_sink is None else {**written, "d_sink": d_sink}


def check_sparse_bwd(inputs: SparseInputs, bwd: SparseMlaBwd | None = None) -> GateResult:
    """`run_sparse_bwd`, through the gate."""
    against = expected_sparse_bwd(inputs)
    return check(run_sparse_bwd(inputs, bwd), against.x64, against.xr)


def check_sparse_fwd(inputs: SparseInputs) -> GateResult:
    """One guarded, poisoned call of the forward: `o` and `lse`, through the gate."""
    given = {"q": inputs.q, "kv": inputs.kv, "topk_indices": inputs.topk_indices,
             "attn_sink": inputs.sink}  # fmt: skip
    with _guarded(given) as views, poisoned():
        o, lse = mha_sink.sparse_mla_fwd_dsv4(**views, scale=inputs.case.scale)
    against = expected_sparse_fwd(inputs)
    return check({"o": o, "lse": lse}, against.x64, against.xr)


@contextmanager
def _guarded(given: dict[str, Tensor | None]) -> Iterator[dict[str, Any]]:
    """Copies of the tensors between guard bands; asserts afterwards that nothing was written."""
    buffers = {name: GuardedTensor.of(name, x) for name, x in given.items() if x is not None}
    yield {name: buffers[name].view if name in buffers else None for name in given}
    for name, buffer in buffers.items():
        buffer.check()
        before = given[name]
        assert before is not None
        assert torch.equal(_bits(buffer.view), _bits(before)), f"the call changed its input {name}"


def _bits(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)
