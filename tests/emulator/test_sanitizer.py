"""The sanitizer finds each planted fault, passes its repaired twin, and passes our kernels."""

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from emulated import launch, place
from mha_sink import _C
from mha_sink.testing import case, make_inputs, run_guarded
from mha_sink.testing.sparse_mla import (
    SparseCase,
    check_sparse_fwd,
    make_sparse_inputs,
    run_sparse_bwd,
)

Code = Callable[[str], _C.EmulatedObject]

ALL = "races,waits,hazards,uninit"

# Kernel of tests/kernels/sanitizer.hip without _fault or _clean, check, what the message says.
# A fault's own message names the instruction that consumes, the other text the one that it hurts.
PLANTED = [
    ("use_of_load", "waits", r"`v_add_u32 v11, 1, v10`.*reads v10 .* vmcnt .*_load_dword v10"),
    ("use_of_second_load", "waits", r"reads v11 .*global_load_dword v11"),
    ("store_between_loads", "waits", r"reads v10 .*global_load_dword v10"),
    ("overwritten_load", "waits", r"overwrites v10 .*global_load_dword v10"),
    ("use_of_lds_read", "waits", r"reads v11 .* lgkmcnt .*ds_read_b32 v11"),
    ("use_of_scalar_load", "waits", r"reads s20 .* scalar memory .*s_load_dword s20"),
    ("mfma_to_valu", "hazards", r"v35: .*needs 12 wait states after `v_mfma.* there are 11"),
    ("mfma16_to_valu", "hazards", r"v23: .*needs 8 wait states after `v_mfma.* there are 7"),
    ("mfma_to_store", "hazards", r"v20: .*needs 12"),
    ("mfma_to_overwrite", "hazards", r"v25: .*overwrites.*needs 12"),
    ("mfma_to_a", "hazards", r"v20: .*as A or B needs 12"),
    ("mfma_to_part_of_c", "hazards", r"v24: .*as C needs 10"),
    ("c_to_overwrite", "hazards", r"v44: .*needs 7"),
    ("valu_to_mfma", "hazards", r"v36: .*needs 2 wait states after `v_mov_b32 v36, 0`"),
    ("m0_to_lds_dma", "hazards", r"m0: LDS-DMA .*needs 1"),
    ("transcendental_to_valu", "hazards", r"v10: .*needs 1"),
    ("mask_to_select", "hazards", r"vcc_lo: .*needs 2"),
    ("valu_to_lane_swap", "hazards", r"v1[01]: .*needs 2"),
    ("valu_to_dpp", "hazards", r"v10: .*needs 2"),
    ("valu_to_readlane", "hazards", r"v10: .*needs 1"),
    ("valu_to_lane_select", "hazards", r"s20: .*needs 4"),
    ("valu_to_address", "hazards", r"s22: .*needs 5"),
    ("wide_store_to_overwrite", "hazards", r"v12: .*needs 2"),
    ("uninit_vgpr", "uninit", r"reads v10, which nobody wrote in lane 0 \(64 such lanes\)"),
    ("uninit_agpr", "uninit", r"reads v10, which nobody wrote"),
    ("uninit_address", "uninit", r"reads s20, which nobody wrote"),
    ("uninit_branch", "uninit", r"s_cbranch_scc1.*reads scc"),
    ("uninit_lanes", "uninit", r"reads v10, which nobody wrote in lane 8 \(56 such lanes\)"),
    ("uninit_lds", "uninit", r"reads v10.*LDS byte 0, which nobody wrote, by `ds_read_b32 v10"),
    ("uninit_mask", "uninit", r"reads vcc_lo"),
    ("fetched_by_another_wave", "races", r"LDS race on byte .*ds_read.*global_load_lds|"
                                         r"LDS race on byte .*global_load_lds.*ds_read"),
    ("barrier_before_wait", "races", r"wave 0 reads it .*wave 1 has written it .*ds_write_b32"),
    ("bytes_of_a_dword", "races", r"LDS race on byte 0: wave 1 writes it .*wave 0 has written it"),
    ("stored_by_two_workgroups", "races", r"stores to byte 0 of out, which workgroup \(\d, 0, 0\) "
                                          r"has stored to \(`global_store_dword"),
    ("loaded_from_another_workgroup", "races", r"byte 0 of out, which workgroup \(\d, 0, 0\) has "),
]  # fmt: skip


# Marks in the source, by the kernel's first word. The other kernels are one macro each.
RACING = {
    "fetched": ("read", "write"),
    "barrier": ("read", "write"),
    "bytes": ("write",),
    "stored": ("write",),
    "loaded": ("read",),  # the store is common to two branches: no line
}


def places(kernel: str) -> set[str]:
    """The source lines that a finding in `kernel` names."""
    word = kernel.partition("_")[0]
    marks = [f"// {word}: {what}" for what in RACING.get(word, ())] or [f"TWINS({kernel},"]
    return {place("sanitizer", mark) for mark in marks}


def run(code: Code, kernel: str, sanitize: str) -> None:
    x, out = np.arange(1024, dtype=np.uint32), np.zeros(1024, np.uint32)
    threads = 256 if kernel.startswith(("fetched", "barrier", "bytes")) else 64
    workgroups = 2 if re.search("workgroup|halves", kernel) else 1
    arguments = {"x": x, "out": out}
    launch(code("sanitizer"), kernel, workgroups, threads, arguments, None, 1024, sanitize)


@pytest.mark.parametrize(("kernel", "check", "message"), PLANTED, ids=[row[0] for row in PLANTED])
def test_planted_fault_is_found(code: Code, kernel: str, check: str, message: str) -> None:
    name = f"{kernel}_fault"
    with pytest.raises(_C.SanitizerError) as finding:
        run(code, name, check)
    text = str(finding.value)
    assert re.search(message, text), text
    where = r"` at 0x[0-9a-f]+ \(sanitizer.hip:\d+\), workgroup \(\d, 0, 0\), wave \d: "
    for part in (f"kernel {name}, ", where):
        assert re.search(part, text), text
    assert places(kernel) <= set(re.findall(r"\(sanitizer.hip:\d+\)", text)), text


@pytest.mark.parametrize(
    ("kernel", "check"),
    [row[:2] for row in PLANTED]
    + [("halves_of_a_dword", "races"), ("atomics_of_two_workgroups", "races")],
)
def test_repaired_twin_is_clean(code: Code, kernel: str, check: str) -> None:
    run(code, f"{kernel}_clean", check)


@pytest.mark.parametrize("kernel", [row[0] for row in PLANTED if row[0] != "uninit_address"])
def test_nothing_is_found_without_the_sanitizer(code: Code, kernel: str) -> None:
    run(code, f"{kernel}_fault", "")


@pytest.mark.parametrize("kernel", ["copy_weak_wait", "copy_no_wait"])
def test_lds_dma_read_before_its_wait_is_found(code: Code, kernel: str) -> None:
    x, out = np.arange(1280, dtype=np.uint32), np.zeros(1280, np.uint32)
    arguments = {"x": x, "out": out, "tiles": np.uint32(5)}
    launch(code("lds_dma"), "copy_exact_wait", 1, 64, arguments, sanitize=ALL)
    with pytest.raises(_C.SanitizerError, match=r"LDS byte 0 by lane 0 .*global_load_lds_dwordx4"):
        launch(code("lds_dma"), kernel, 1, 64, arguments, sanitize="waits")


@pytest.mark.parametrize("removed", ["before_read", "before_write"])
@pytest.mark.parametrize("quantum", [1, 64, 0])
def test_removed_barrier_is_found_under_every_schedule(
    code: Code, removed: str, quantum: int
) -> None:
    x, out = np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)
    arguments = {"x": x, "out": out, "rounds": np.uint32(3)}
    schedule = (quantum, False)
    barriers = code("barriers")
    launch(barriers, "reverse_both_barriers", 1, 256, arguments, schedule, sanitize=ALL)
    kernel = f"reverse_no_barrier_{removed}"
    with pytest.raises(_C.SanitizerError, match=r"LDS race on byte \d+: wave"):
        launch(barriers, kernel, 1, 256, arguments, schedule, sanitize="races")


@pytest.fixture
def sanitized() -> Iterator[None]:
    before = _C.sanitizer()
    _C.set_sanitizer(ALL)
    yield
    _C.set_sanitizer(before)


def test_set_sanitizer_holds_for_launches_that_say_nothing(code: Code, sanitized: None) -> None:
    assert _C.sanitizer() == ALL
    out = np.zeros(64, np.float32)
    with pytest.raises(_C.SanitizerError, match="v40"):
        launch(code("faults"), "uninitialized_register", 1, 64, {"out": out})


def test_unknown_check_is_named() -> None:
    with pytest.raises(_C.InvalidArgument, match=r'"wait".*races,waits,hazards,uninit'):
        _C.set_sanitizer("races,wait")


def run_smallest(kernel: str) -> None:
    """A small case of mha_sink.testing that launches the kernel."""
    if not kernel.startswith("sparse_mla_"):
        inputs = make_inputs(case(smallest_case(kernel)))
        run_guarded(inputs, deterministic=kernel.startswith("mha_dq_") and "_dk_" not in kernel)
        return
    found = re.search(r"_h(\d+)$", kernel)
    dtype = "float16" if "fp16" in kernel else "bfloat16"
    sparse = make_sparse_inputs(SparseCase("clean", 9, int(found[1]) if found else 16, 96, 7,
                                           dtype=dtype))  # fmt: skip
    if "_fwd_" in kernel:
        check_sparse_fwd(sparse)
    else:
        run_sparse_bwd(sparse)


def smallest_case(kernel: str) -> str:
    """By name; mha_dq_* need deterministic=True."""
    found = re.fullmatch(r"mha_\w+_(bf16|fp16)_hd(\d+)(?:x(\d+))?", kernel)
    if found is None:
        return "packed/fp16" if kernel.endswith("fp16") else "packed/empty-middle"
    dtype, hdim, hdim_v = found.groups()
    half = "-fp16" if dtype == "fp16" else ""
    if hdim in ("64", "128"):
        return f"smoke/d{hdim}{half}" + ("-causal" if hdim == "128" and half else "")
    return f"hdim/d{hdim}" + (f"-v{hdim_v}" if hdim_v else "") + half


@pytest.mark.parametrize("kernel", [kernel["name"] for kernel in _C.kernels()])
def test_every_kernel_of_the_library_is_clean(kernel: str, sanitized: None) -> None:
    _C.profile_start()
    try:
        run_smallest(kernel)
    finally:
        launched = _C.profile_stop()
    assert kernel in launched


# Rows and keys at edges, masks that skip tiles, sequences without keys.
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    "name", ["irregular/q17-k33", "window/both", "corner/most-rows-empty", "packed/empty-middle"]
)
def test_edges_are_clean(name: str, deterministic: bool, sanitized: None) -> None:
    run_guarded(make_inputs(case(name)), deterministic=deterministic)
