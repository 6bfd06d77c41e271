"""Buffer descriptors and atomics."""

from collections.abc import Callable

import numpy as np
import pytest

from emulated import SCHEDULES, bf16_bits, guarded, launch, untouched
from mha_sink import _C

Code = Callable[[str], _C.EmulatedObject]


@pytest.mark.parametrize("count", [64, 67, 50, 1, 0])
def test_buffer_loads_past_the_end_read_zero(code: Code, count: int) -> None:
    x = np.arange(1, count + 1, dtype=np.uint32)
    padded = np.concatenate([x, np.zeros(80, np.uint32)])
    out = np.full(448, 99, np.uint32)
    launch(
        code("memory"), "buffer_loads", 1, 64, {"x": x, "out": out, "bytes": np.uint32(x.nbytes)}
    )
    for begin, dwords in ((0, 1), (64, 2), (192, 4)):
        got = out[begin : begin + 64 * dwords].reshape(64, dwords)
        expected = padded[np.arange(64)[:, None] + np.arange(dwords)]
        np.testing.assert_array_equal(got, expected, err_msg=f"{dwords} dwords")


@pytest.mark.parametrize(("count", "soffset"), [(64, 0), (50, 0), (50, 16), (10, 80), (0, 0)])
def test_buffer_stores_past_the_end_are_dropped(code: Code, count: int, soffset: int) -> None:
    out, whole = guarded((count,), np.uint32, guard=128)
    arguments = {"out": out, "bytes": np.uint32(4 * count), "soffset": np.uint32(soffset)}
    launch(code("memory"), "buffer_store", 1, 64, arguments)
    assert untouched(out, whole)
    expected = np.full(count, 0xFFFFFFFF, np.uint32)
    expected[soffset // 4 :] = np.arange(1, 65)[: max(count - soffset // 4, 0)]
    np.testing.assert_array_equal(out, expected)


def test_buffer_access_of_bytes_and_halves(code: Code) -> None:
    x = np.arange(100, 228, dtype=np.uint8)
    out = np.zeros(4096, np.uint8)
    launch(code("memory"), "buffer_small", 1, 64, {"x": x, "out": out, "bytes": np.uint32(120)})
    visible = np.where(np.arange(128) < 120, x, 0).astype(np.uint8)
    np.testing.assert_array_equal(out[:128].view(np.uint16), visible.view(np.uint16) + 1)
    np.testing.assert_array_equal(out[128:192], visible[:64] + 3)
    assert not out[192:].any()


def test_buffer_larger_than_its_memory_is_an_error(code: Code) -> None:
    x, out = np.zeros(50, np.uint32), np.zeros(448, np.uint32)
    with pytest.raises(_C.EmulationError, match=r"buffer_loads[\s\S]*\bx\b"):
        launch(code("memory"), "buffer_loads", 1, 64, {"x": x, "out": out, "bytes": np.uint32(256)})


@pytest.mark.parametrize(("stride", "records"), [(4, 64), (4, 50), (12, 40), (20, 0)])
def test_indexed_buffers(code: Code, stride: int, records: int) -> None:
    x = np.arange(1, 64 * stride + 33, dtype=np.uint8)
    target = np.full(64 * stride, 255, np.uint8)
    out = np.zeros((3, 64), np.uint32)
    arguments = {"x": x, "out": out, "target": target}
    arguments |= {"stride": np.uint32(stride), "records": np.uint32(records)}
    launch(code("memory"), "buffer_indexed", 1, 64, arguments)
    lane = np.arange(64)
    for got, offset in zip(out, (0, 4, 8 + 4 * (lane % 4)), strict=True):
        at = (lane * stride + offset)[:, None] + np.arange(4)
        expected = np.where(lane < records, x[at].copy().view(np.uint32)[:, 0], 0)
        np.testing.assert_array_equal(got, expected)
    written = np.full((64, stride), 255, np.uint8)
    written[:records, :4] = lane[:records, None].astype(np.uint32).view(np.uint8)
    np.testing.assert_array_equal(target, written.ravel())


@pytest.mark.parametrize("threads", [1, 2])
def test_atomics_of_many_workgroups_lose_nothing(code: Code, threads: int) -> None:
    before = _C.thread_count()
    _C.set_thread_count(threads)
    try:
        workgroups, cells = 200, 7
        out = np.zeros(cells, np.float32)
        out_bf16 = np.zeros((cells, 2), np.uint16)
        arguments = {"out": out, "out_bf16": out_bf16, "cells": np.uint32(cells)}
        launch(code("memory"), "atomics", workgroups, 256, arguments)
    finally:
        _C.set_thread_count(before)
    per_cell = np.bincount(np.arange(256) % cells) * workgroups
    np.testing.assert_array_equal(out, per_cell)
    # 256 + 1 rounds to 256 in bf16, so that is where each sum of ones ends.
    np.testing.assert_array_equal(out_bf16, bf16_bits(np.full((cells, 2), 256.0)))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_atomics_return_each_old_value_once(code: Code, schedule: tuple[int, bool]) -> None:
    counter, out = np.zeros(1, np.float32), np.full(50 * 64, -1, np.float32)
    launch(code("memory"), "atomic_tickets", 50, 64, {"counter": counter, "out": out}, schedule)
    np.testing.assert_array_equal(np.sort(out), np.arange(50 * 64))
    assert counter[0] == 50 * 64
