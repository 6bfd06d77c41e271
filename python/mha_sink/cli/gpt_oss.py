"""A small random GptOss whose attention runs backward through `mha_bwd`, and what it was given."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import mha_sink
from mha_sink import reference
from mha_sink.testing import GateResult, check, spread_sinks
from mha_sink.testing.cases import SINK_OFFSETS

ATTENTION = "mha_sink_recorded"


@dataclass
class Layer:
    """One attention layer of one training step, as its forward and backward saw it.

    q, k, v, out, dout are BSHD; lse [batch, nhead_q, seqlen_q] and sink [nhead_q] in float32.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor
    sink: Tensor
    mask: reference.Mask
    dout: Tensor | None = None
    gradients: dict[str, Tensor] | None = None
    seconds: float = 0.0

    def check(self) -> GateResult:
        """The gate on the gradients that `mha_bwd` gave, from exactly these inputs."""
        assert self.dout is not None
        assert self.gradients is not None
        x64 = reference.definition_bwd(
            self.dout, self.q, self.k, self.v, self.sink, **self.mask
        )._asdict()
        xr = reference.mixed_bwd(
            self.dout, self.q, self.k, self.v, self.out, self.lse, self.sink, **self.mask
        )._asdict()
        names = ("dq", "dk", "dv", "d_sink")
        return check(self.gradients, {n: x64[n] for n in names}, {n: xr[n] for n in names})


class _RecordedAttention(torch.autograd.Function):
    """Forward by `reference.mixed`, backward by `mha_bwd`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sink: Tensor, recorder: Recorder,
                mask: reference.Mask) -> Tensor:  # fmt: skip
        out, lse = reference.mixed(q, k, v, sink.float(), **mask)
        ctx.layer = Layer(q, k, v, out.detach().clone(), lse, sink.detach().float(), mask)
        ctx.sink_dtype = sink.dtype
        recorder.layers.append(ctx.layer)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        layer = ctx.layer
        layer.dout = grad_outputs[0].contiguous()
        d_sink = torch.zeros_like(layer.sink)
        left, right = layer.mask["window"]
        started = time.perf_counter()
        dq, dk, dv, _ = mha_sink.mha_bwd(
            layer.dout, layer.q, layer.k, layer.v, layer.out, layer.lse, 0.0, layer.mask["scale"],
            layer.mask["causal"], left, right, False,
            sink=layer.sink.expand(layer.q.shape[0], -1).contiguous(), d_sink=d_sink,
        )  # fmt: skip
        layer.seconds = time.perf_counter() - started
        layer.gradients = {"dq": dq, "dk": dk, "dv": dv, "d_sink": d_sink}
        return dq, dk, dv, d_sink.to(ctx.sink_dtype), None, None


class Recorder:
    """The attention of a transformers model while `recording`; `layers` fills in forward order."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.spread = False

    def attention(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        s_aux: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Implements transformers' attention interface on [batch, nhead, seqlen, hdim] tensors."""
        if attention_mask is not None:
            raise NotImplementedError("padded batches are not recorded; give unpadded text")
        if dropout:
            raise NotImplementedError(f"dropout is {dropout}; need 0")
        assert s_aux is not None, "GptOss hands its sinks over as s_aux"
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        # transformers counts the query's own key in a window, flash-style windows do not.
        left = -1 if sliding_window is None else sliding_window - 1
        mask: reference.Mask = {"scale": scaling, "causal": True, "window": (left, 0)}
        if self.spread:
            lse = reference.definition(q, k, v, **mask).lse
            s_aux.data.copy_(spread_sinks(lse.mean(0, keepdim=True), SINK_OFFSETS)[0])
        out: Tensor = _RecordedAttention.apply(q, k, v, s_aux, self, mask)  # type: ignore[no-untyped-call]
        return out, None

    @contextmanager
    def recording(self, model: Any) -> Iterator[Recorder]:
        """Within it, `model` attends through this recorder."""
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

        # Names that are missing from the mask table get no mask at all, not even for padding.
        AttentionMaskInterface.register(
            ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"]
        )
        AttentionInterface.register(ATTENTION, self.attention)
        before = model.config._attn_implementation
        model.set_attn_implementation(ATTENTION)
        try:
            yield self
        finally:
            model.set_attn_implementation(before)

    def spread_sinks(self, model: Any, tokens: Tensor) -> None:
        """Sets each layer's sinks around the lse that its heads have on `tokens`."""
        self.spread = True
        with torch.no_grad():
            model(tokens)
        self.spread = False
        self.layers.clear()


def small_gpt_oss(
    nhead_q: int,
    nhead_k: int,
    hdim: int,
    window: int,
    max_seqlen: int,
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 0,
) -> Any:
    """A random GptOss over bytes: one sliding-window and one full-attention layer."""
    from transformers import GptOssConfig, GptOssForCausalLM

    torch.manual_seed(seed)
    hidden = 128
    config = GptOssConfig(
        vocab_size=256,
        hidden_size=hidden,
        intermediate_size=64,
        num_local_experts=4,
        num_experts_per_tok=2,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        num_attention_heads=nhead_q,
        num_key_value_heads=nhead_k,
        head_dim=hdim,
        sliding_window=window,
        max_position_embeddings=max_seqlen,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        # Scores of unit spread: with the usual 0.02 attention would be all but uniform.
        initializer_range=hidden**-0.5,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
        use_cache=False,
    )
    model: Any = GptOssForCausalLM(config)
    return model.to(dtype)


def next_byte_loss(model: Any, tokens: Tensor) -> Tensor:
    """Mean cross entropy of each byte of `tokens` [batch, seqlen] given those before it."""
    logits = model(tokens).logits[:, :-1].float()
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
