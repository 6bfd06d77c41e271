"""What a GPU would hide or fault on is found: missing waits, missing barriers, bounds, poison."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emulated import POISON, SCHEDULES, Array, guarded, launch, place, untouched
from mha_sink import _C

Code = Callable[[str], _C.EmulatedObject]


def words(count: int) -> Array:
    return np.arange(1, count + 1, dtype=np.uint32)


# LDS-DMA


def dma_copy(code: Code, kernel: str, schedule: tuple[int, bool]) -> tuple[Array, Array]:
    tiles = 5
    x = words(tiles * 256)
    out, whole = guarded(x.shape, np.uint32)
    launch(
        code("lds_dma"), kernel, 1, 64, {"x": x, "out": out, "tiles": np.uint32(tiles)}, schedule
    )
    assert untouched(out, whole)
    return x, out


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lds_dma_with_its_wait_copies(code: Code, schedule: tuple[int, bool]) -> None:
    x, out = dma_copy(code, "copy_exact_wait", schedule)
    np.testing.assert_array_equal(out, x)


@pytest.mark.faulty
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lds_dma_without_its_wait_reads_poison(code: Code, schedule: tuple[int, bool]) -> None:
    _, out = dma_copy(code, "copy_no_wait", schedule)
    np.testing.assert_array_equal(out, POISON)


@pytest.mark.faulty
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lds_dma_with_a_wait_that_is_wrong_once_reads_poison_once(
    code: Code, schedule: tuple[int, bool]
) -> None:
    x, out = dma_copy(code, "copy_weak_wait", schedule)
    np.testing.assert_array_equal(out[:256], POISON)
    np.testing.assert_array_equal(out[256:], x[256:])


# Barriers


def reverse(code: Code, kernel: str, schedule: tuple[int, bool], rounds: int = 3) -> Array:
    x, out = words(256), np.zeros(256, np.uint32)
    arguments = {"x": x, "out": out, "rounds": np.uint32(rounds)}
    launch(code("barriers"), kernel, 1, 256, arguments, schedule)
    return out


def test_exchange_with_barriers_is_right_under_every_schedule(code: Code) -> None:
    for schedule in SCHEDULES:
        out = reverse(code, "reverse_both_barriers", schedule)
        np.testing.assert_array_equal(out, words(256)[::-1] + 3, err_msg=str(schedule))


@pytest.mark.faulty
@pytest.mark.parametrize(
    "kernel", ["reverse_no_barrier_before_read", "reverse_no_barrier_before_write"]
)
def test_exchange_without_a_barrier_depends_on_the_schedule(code: Code, kernel: str) -> None:
    results = {reverse(code, kernel, schedule).tobytes() for schedule in SCHEDULES}
    assert len(results) > 1


@pytest.mark.faulty
def test_removed_barrier_shows_poison(code: Code) -> None:
    out = reverse(code, "reverse_no_barrier_before_read", (0, False), rounds=1)
    # Wave 0 ran first, so it read what the other waves had not written, and added one.
    np.testing.assert_array_equal(out[:64], POISON + 1)
    np.testing.assert_array_equal(out[192:], words(64)[::-1] + 1)


def tree_sum(code: Code, kernel: str, schedule: tuple[int, bool]) -> tuple[Array, Array]:
    x = np.random.default_rng(0).standard_normal((3, 256), np.float32)
    out = np.zeros(3, np.float32)
    launch(code("barriers"), kernel, 3, 256, {"x": x, "out": out}, schedule)
    return x, out


def test_reduction_with_barriers_is_bit_identical_under_every_schedule(code: Code) -> None:
    results = set()
    for schedule in SCHEDULES:
        x, out = tree_sum(code, "sum_with_barriers", schedule)
        results.add(out.tobytes())
    assert len(results) == 1
    np.testing.assert_allclose(out, x.sum(axis=1, dtype=np.float64), rtol=0, atol=1e-4)


@pytest.mark.faulty
def test_reduction_without_barriers_is_exposed(code: Code) -> None:
    outputs = [tree_sum(code, "sum_without_barriers", schedule)[1] for schedule in SCHEDULES]
    assert len({out.tobytes() for out in outputs}) > 1
    assert any(np.isnan(out).any() for out in outputs)


def test_waves_that_have_ended_are_not_waited_for(code: Code) -> None:
    for schedule in SCHEDULES:
        out = np.zeros(256, np.uint32)
        launch(code("barriers"), "barrier_after_others_ended", 1, 256, {"out": out}, schedule)
        np.testing.assert_array_equal(out, 1)


# Not quantum 0 in descending order: a wave that spins would never let wave 0 arrive.
@pytest.mark.parametrize("schedule", [(1, False), (50, True), (0, False)])
def test_deadlock_at_a_barrier_is_an_error_that_names_who_waits(
    code: Code, schedule: tuple[int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MHA_SINK_MAX_INSTRUCTIONS", "20000")
    out = np.zeros(256, np.uint32)
    with pytest.raises(_C.EmulationError, match=r"barrier_deadlock[\s\S]*s_barrier.*: 0$"):
        launch(code("barriers"), "barrier_deadlock", 1, 256, {"out": out}, schedule)


# Bounds

# kernel, arguments after the buffers, mnemonic, buffer that the message names
OUT_OF_BOUNDS = [
    ("global_read", np.int32(1), "global_load_dword", "x"),
    ("global_read", np.int32(-1), "global_load_dword", "x"),
    ("global_write", np.int32(1), "global_store_dword", "out"),
    ("global_write", np.int32(-1), "global_store_dword", "out"),
]


@pytest.mark.parametrize(("kernel", "index", "mnemonic", "buffer"), OUT_OF_BOUNDS)
def test_global_access_out_of_bounds_names_kernel_instruction_and_buffer(
    code: Code, kernel: str, index: np.int32, mnemonic: str, buffer: str
) -> None:
    # Both buffers inside one allocation, far apart: what lies around them is mapped memory.
    memory = np.zeros(4096, np.uint32)
    x, out = memory[1024:1088], memory[3072:3136]
    with pytest.raises(_C.EmulationError) as fault:
        launch(code("faults"), kernel, 1, 64, {"x": x, "out": out, "index": index})
    assert place("faults", f"{kernel}'s access") in str(fault.value)
    for part in (kernel, mnemonic, buffer):
        assert re.search(rf"\b{part}\b", str(fault.value)), str(fault.value)
    assert not memory[:1024].any()
    assert not memory[3136:].any()


def test_access_in_bounds_is_no_fault(code: Code) -> None:
    x, out = words(64), np.zeros(64, np.uint32)
    launch(code("faults"), "global_read", 1, 64, {"x": x, "out": out, "index": np.int32(0)})
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("kernel", ["global_write", "global_atomic"])
def test_write_to_read_only_memory_is_an_error(code: Code, kernel: str) -> None:
    out = np.zeros(64, np.float32)
    out.flags.writeable = False
    arguments: dict[str, Array | np.generic] = {"out": out, "index": np.int32(0)}
    if kernel == "global_write":
        arguments = {"x": words(64), **arguments}
    with pytest.raises(_C.EmulationError, match=rf"{kernel}[\s\S]*\bout\b") as fault:
        launch(code("faults"), kernel, 1, 64, arguments)
    assert place("faults", f"{kernel}'s access") in str(fault.value)
    assert not out.any()


@pytest.mark.parametrize(
    ("kernel", "address", "mnemonic"),
    [
        ("lds_read", 256, "ds_read_b32"),
        ("lds_read", 0xFFFFFFFC, "ds_read_b32"),
        ("lds_write", 256, "ds_write_b32"),
        ("lds_dma_write", 4, "global_load_lds_dword"),
    ],
)
def test_lds_access_out_of_bounds_is_an_error(
    code: Code, kernel: str, address: int, mnemonic: str
) -> None:
    arguments: dict[str, Array | np.generic] = {"out": words(64), "address": np.uint32(address)}
    if kernel == "lds_dma_write":
        arguments = {"x": words(64), **arguments}
    with pytest.raises(
        _C.EmulationError, match=rf"{kernel}[\s\S]*{mnemonic}|{mnemonic}[\s\S]*{kernel}"
    ) as fault:
        launch(code("faults"), kernel, 1, 64, arguments)
    assert place("faults", f"{kernel}'s access") in str(fault.value)


def test_lds_access_in_bounds_is_no_fault(code: Code) -> None:
    out = np.zeros(64, np.uint32)
    launch(code("faults"), "lds_read", 1, 64, {"out": out, "address": np.uint32(252)})
    np.testing.assert_array_equal(out, 63)
    x = words(64)
    arguments = {"x": x, "out": out, "address": np.uint32(0)}
    launch(code("faults"), "lds_dma_write", 1, 64, arguments)
    np.testing.assert_array_equal(out, x)


# Poison


@pytest.mark.faulty
def test_uninitialized_register_gives_nan(code: Code) -> None:
    out = np.zeros(64, np.float32)
    launch(code("faults"), "uninitialized_register", 1, 64, {"out": out})
    assert np.isnan(out).all()


@pytest.mark.faulty
@pytest.mark.parametrize("kernel", ["uninitialized_accumulator", "uninitialized_lds"])
def test_uninitialized_storage_is_poison(code: Code, kernel: str) -> None:
    out = np.zeros(64, np.uint32)
    launch(code("faults"), kernel, 1, 64, {"out": out})
    np.testing.assert_array_equal(out, POISON)


# Instructions


@pytest.mark.parametrize(
    ("stem", "kernel", "what"),
    [
        ("unsupported", "unsupported_instruction", r"v_cvt_scalef32_pk_fp4_f32|0xd23d"),
        ("undefined", "undefined_encoding", r"0xf8000000"),
    ],
)
def test_instruction_that_is_not_emulated_is_named_with_its_address(
    kernel_folder: Path, stem: str, kernel: str, what: str
) -> None:
    out = np.zeros(64, np.uint32)
    elf = (kernel_folder / f"{stem}.co").read_bytes()
    with pytest.raises(_C.EmulationError) as fault:
        launch(_C.EmulatedObject(elf, stem), kernel, 1, 64, {"out": out})
    message = str(fault.value).lower()
    assert re.search(what, message), message
    assert kernel in message, message
    assert place(stem, f"{kernel}'s fault") in message, message
    assert re.search(r"(address|at|\+)\s*(0x)?[0-9a-f]+", message), message


def test_launch_of_a_missing_kernel_lists_what_exists(code: Code) -> None:
    with pytest.raises(_C.EmulationError, match=r"no_such_kernel[\s\S]*lds_read"):
        launch(code("faults"), "no_such_kernel", 1, 64, {})
