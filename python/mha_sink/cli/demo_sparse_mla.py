"""The DeepSeek-V4-shaped demo: some optimiser steps over real text, every gradient gated."""

from __future__ import annotations

import time

import torch

from mha_sink import _C
from mha_sink.cli.deepseek_v4 import SmallModel, Step
from mha_sink.cli.errors import UsageError
from mha_sink.cli.report import print_gate, print_instruction_mix

LEARNING_RATE = 1e-3


def run(text: bytes, nhead: int, window: int, blocks: int, steps: int, seed: int) -> int:
    """Trains on the bytes of `text` at once.

    Args:
        text: at least two bytes.
        nhead: query heads, at most 128.
        window: tokens that a token sees, itself included.
        blocks: blocks of the pool that it sees besides.
        steps: optimiser steps, at least 1.
        seed: of the weights.

    Returns:
        The exit status: 0, 1 when a gate failed.
    """
    if len(text) < 2:
        raise UsageError(f"--seqlen is {len(text)}; need at least 2")
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    model = SmallModel(nhead, window, blocks, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    print(
        f"DeepSeek-V4-shaped attention, random weights: {nhead} heads of 512, {len(text)} bytes of "
        f"text, a window of {window} and {blocks} blocks of the compressed pool, bfloat16"
    )
    with torch.no_grad():
        model(tokens, [], spread=True)

    passed = True
    for number in range(steps):
        record: list[Step] = []
        optimizer.zero_grad()
        _C.profile_start()
        try:
            loss = model.loss(tokens, record)
            started = time.perf_counter()
            torch.autograd.backward(loss)
            backward_seconds = time.perf_counter() - started
        finally:
            profile = _C.profile_stop()
        result = record[0].check()
        passed &= result.passed
        print_gate(
            f"Step {number + 1}, loss {loss.item():.3f} a byte: sparse_mla emulated on CPU, "
            f"{record[0].seconds:.2f} s forward, {backward_seconds:.2f} s backward on "
            f"{_C.thread_count()} threads",
            result,
        )
        optimizer.step()
    print_instruction_mix(profile)
    with torch.no_grad():
        print(f"\nLoss after the last step: {model.loss(tokens, []).item():.3f} a byte.")
    print("Every gate passed." if passed else "A gate FAILED.")
    return 0 if passed else 1
