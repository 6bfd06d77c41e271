"""Training of a small random model over real text: a GptOss step, or sparse MLA of DeepSeek-V4.

Compares the gradients of q, k, v (or q, kv) and the sinks with float64. Exit status 1 when a gate
fails.
"""

from __future__ import annotations

import argparse
import importlib.util
from importlib import metadata
from pathlib import Path

import torch

from mha_sink import _C
from mha_sink.cli import demo_sparse_mla
from mha_sink.cli.errors import UsageError
from mha_sink.cli.report import print_gate, print_instruction_mix

SEQLENS = {"gpt_oss": 512, "sparse_mla": 256}


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is given; need at least 1")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", choices=tuple(SEQLENS), default="gpt_oss",
        help="%(default)s by default",
    )  # fmt: skip
    parser.add_argument("--seqlen", type=_positive, help="bytes of text (512, of sparse_mla 256)")
    parser.add_argument("--heads", type=_positive, default=64, help="query heads (%(default)s)")
    parser.add_argument(
        "--kv-heads", type=_positive, default=8, help="KV heads of gpt_oss (%(default)s)"
    )
    parser.add_argument(
        "--head-dim", type=_positive, default=64, help="head dim of gpt_oss (%(default)s)"
    )
    parser.add_argument(
        "--blocks", type=_positive, default=32,
        help="compressed blocks that a token of sparse_mla sees (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=_positive, default=3, help="optimiser steps of sparse_mla (%(default)s)"
    )
    parser.add_argument(
        "--window", type=_positive, default=128,
        help="keys that a sliding window holds (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--text", type=Path, help="file to read; this project's README by default")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (%(default)s)")


def run(options: argparse.Namespace) -> int:
    options.seqlen = options.seqlen or SEQLENS[options.model]
    if options.model == "sparse_mla":
        return demo_sparse_mla.run(
            read_text(options.text, options.seqlen), options.heads, options.window,
            options.blocks, options.steps, options.seed,
        )  # fmt: skip
    if options.heads % options.kv_heads:
        raise UsageError(
            f"--heads is {options.heads} and --kv-heads {options.kv_heads}; need a multiple of it"
        )
    if importlib.util.find_spec("transformers") is None:
        raise UsageError("the demo needs transformers: pip install 'mha_sink[demo]'")
    from mha_sink.cli.gpt_oss import Recorder, next_byte_loss, small_gpt_oss

    text = read_text(options.text, options.seqlen)
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()[None]
    model = small_gpt_oss(
        options.heads, options.kv_heads, options.head_dim, options.window, options.seqlen,
        seed=options.seed,
    )  # fmt: skip
    print(
        f"GptOss, random weights: {options.heads} query and {options.kv_heads} KV heads of "
        f"{options.head_dim}, {options.seqlen} bytes of text, bfloat16"
    )
    recorder = Recorder()
    with recorder.recording(model):
        recorder.spread_sinks(model, tokens)
        loss = next_byte_loss(model, tokens)
        _C.profile_start()
        try:
            torch.autograd.backward(loss)
        finally:
            profile = _C.profile_stop()
    print(f"loss {loss.item():.3f} a byte (uniform guessing: {torch.tensor(256.0).log():.3f})")

    passed = True
    for number, layer in enumerate(recorder.layers):
        left = layer.mask["window"][0]
        span = "full causal attention" if left < 0 else f"sliding window of {left + 1}"
        result = layer.check()
        passed &= result.passed
        print_gate(
            f"Layer {number}, {span}: mha_bwd emulated on CPU, {layer.seconds:.2f} s on "
            f"{_C.thread_count()} threads",
            result,
        )
    print_instruction_mix(profile)
    print("\nEvery gate passed." if passed else "\nA gate FAILED.")
    return 0 if passed else 1


def read_text(path: Path | None, size: int) -> bytes:
    """The first `size` bytes of a file, or of this project's README as installed with it."""
    if path is not None:
        try:
            text = path.read_bytes()
        except OSError as error:
            raise UsageError(f"--text {path}: {error.strerror}") from None
        source = f"--text {path}"
    else:
        try:
            text = (metadata.metadata("mha_sink")["Description"] or "").encode()
        except (metadata.PackageNotFoundError, KeyError):
            text = b""
        source = "the installed README"
    if len(text) < size:
        raise UsageError(
            f"{source} has {len(text)} bytes and --seqlen is {size}; "
            "give a longer file with --text or a smaller --seqlen"
        )
    return text[:size]
