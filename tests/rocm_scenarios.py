"""What `test_rocm.py` runs, each in a process of its own: a process keeps the HIP runtime it found.

python tests/rocm_scenarios.py NAME FOLDER
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import mha_sink
from fake_rocm import FakeHip
from mha_sink import _C, _devices, _tensors, cli
from mha_sink.testing import Case, case, check, expected, make_inputs, run_guarded

# Several tiles of queries and keys, heads in a group, a second batch.
SHAPE = Case("rocm", 2, 113, 203, 4, 2, 64, causal=True)
S_NOP = 0xBF800000
OUT_OF_MEMORY, NO_BINARY_FOR_GPU, LAUNCH_FAILURE = 2, 209, 719


def through_the_gate(folder: Path) -> None:
    """Device 1 and a stream of it, while device 0 is current."""
    inputs = make_inputs(SHAPE)
    emulated = run_guarded(inputs)
    fake = FakeHip()
    stream = fake.stream(1)
    fake.use_for_torch(1, stream)

    def mha_bwd(**arguments):
        results = mha_sink.mha_bwd(**arguments)
        assert fake.pending(stream) == 5, "four launches and a memset, on the stream, not yet done"
        assert results[0].isnan().all(), "the call does not wait"
        fake.synchronize(1, stream)
        return results

    written = run_guarded(inputs, mha_bwd=mha_bwd)
    assert fake.calls("hipModuleLaunchKernel") == 4
    assert fake.current_device() == 0
    against = expected(inputs)
    gate = check(written, against.x64, against.xr)
    assert gate.passed, str(gate)
    for name, x in emulated.items():
        assert torch.equal(written[name], x), name


def graph_capture(folder: Path) -> None:
    fake = FakeHip()
    stream = fake.stream(0)
    fake.use_for_torch(0, stream)
    inputs = make_inputs(SHAPE)
    fake.begin_capture(0, stream)
    message = error_of(lambda: run_guarded(inputs))
    assert "mha_sink.warmup(device)" in message, message
    assert "mha_dot_do_o_bf16" in message, message
    assert "mha_sink.warmup" in error_of(lambda: mha_sink.warmup("cuda:0")), "warm-up in a capture"
    assert fake.calls("hipModuleLoadData") == 0
    assert fake.end_capture(0, stream) == 0, "a refusal leaves the capture valid"

    mha_sink.warmup("cuda:0")
    assert fake.calls("hipModuleLoadData") == len(_C.kernels())
    mha_sink.warmup("cuda")
    assert fake.calls("hipModuleLoadData") == len(_C.kernels()), "loaded once"
    fake.begin_capture(0, stream)
    run_guarded(inputs, mha_bwd=mha_sink.mha_bwd)
    assert fake.pending(stream) == 0
    assert fake.end_capture(0, stream) == 0, "nothing illegal in the capture"


def packed_sequences(folder: Path) -> None:
    """Lengths stay on the device: nothing waits for them, and nothing trusts them."""
    inputs = make_inputs(case("packed/padded"))
    emulated = run_guarded(inputs)
    fake = FakeHip()
    stream = fake.stream(1)
    fake.use_for_torch(1, stream)

    def on_device(**arguments):
        results = mha_sink.mha_varlen_bwd(**arguments)
        assert results[1].isnan().all(), "the call does not wait"
        fake.synchronize(1, stream)
        return results

    written = run_guarded(inputs, mha_bwd=on_device)
    for name, x in emulated.items():
        assert torch.equal(written[name], x), name
    fake.begin_capture(1, stream)
    mha_varlen_bwd(inputs)
    assert fake.end_capture(1, stream) == 0, "nothing illegal in the capture"


def wrong_lengths(folder: Path) -> None:
    """Unchecked, they keep to the tensors, which the fake watches; checked, nothing is launched."""
    inputs = make_inputs(case("packed/padded"))
    fake = FakeHip()
    stream = fake.stream(1)
    fake.use_for_torch(1, stream)
    least, most = -(2**31), 2**31 - 1
    for values in (
        (0, 70, 30, 90), (5, 6, 7, 8), (0, 0, 0, 1000), (0, -9, 200, 3), (most, 0, most, 0),
        (least, most, least, most), (100, 50, 20, 0), (least,) * 4, (most,) * 4,
    ):  # fmt: skip
        lengths = torch.tensor(values, dtype=torch.int32)
        for names in (("cu_seqlens_q",), ("cu_seqlens_k_padded",), inputs.packing._fields):
            wrong = dataclasses.replace(
                inputs, packing=inputs.packing._replace(**dict.fromkeys(names, lengths))
            )
            for deterministic in (False, True):
                mha_varlen_bwd(wrong, deterministic)
                fake.synchronize(1, stream)
            launches = fake.calls("hipModuleLaunchKernel")
            os.environ["MHA_SINK_CHECK"] = "1"
            message = error_of(lambda: mha_varlen_bwd(wrong))  # noqa: B023
            del os.environ["MHA_SINK_CHECK"]
            assert message.startswith("cu_seqlens_"), message
            assert fake.calls("hipModuleLaunchKernel") == launches
    os.environ["MHA_SINK_CHECK"] = "1"
    mha_varlen_bwd(inputs)
    fake.synchronize(1, stream)


def failures(folder: Path) -> None:
    fake = FakeHip()
    fake.use_for_torch(1, 0)
    inputs = make_inputs(SHAPE)

    fake.fail("hipModuleLoadData", 1, NO_BINARY_FOR_GPU)
    _devices.architecture = lambda index: "gfx942:sramecc+:xnack-"
    message = error_of(lambda: run_guarded(inputs))
    assert "hipErrorNoBinaryForGpu (209): no kernel image is available" in message, message
    assert "mha_dot_do_o_bf16 on cuda:1 (Fake MI350X)" in message, message
    # The tensors of this test are torch's CPU tensors, so warmup is what knows the device here.
    fake.fail("hipModuleLoadData", 1, NO_BINARY_FOR_GPU)
    message = error_of(lambda: mha_sink.warmup("cuda:1"))
    assert "(cuda:1 is gfx942:sramecc+:xnack-; the kernels are gfx950)" in message, message

    fake.fail("hipModuleLaunchKernel", 2, LAUNCH_FAILURE)
    message = error_of(lambda: run_guarded(inputs))
    assert "hipModuleLaunchKernel of mha_dq_dk_dv_bf16_hd64 on cuda:1" in message, message
    assert "hipErrorLaunchFailure (719): unspecified launch failure" in message, message
    assert fake.current_device() == 0

    def raising(block: torch.Tensor) -> None:
        raise KeyboardInterrupt

    launches = fake.calls("hipModuleLaunchKernel")
    _tensors.workspace_fill = raising
    try:
        mha_bwd(inputs)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("what the workspace callback raises must reach the caller")
    assert fake.calls("hipModuleLaunchKernel") == launches


def which_devices(folder: Path) -> None:
    call = _C.MhaBwdCall()
    inputs = make_inputs(SHAPE)
    fake = FakeHip()
    for device in ("cuda:2", "cuda", "cuda:x", "cuda:-1", "xpu:0"):
        q = _tensors.describe("test", "q", inputs.q)
        q.device = device
        for name in ("q", "k", "v", "out", "dout", "softmax_lse"):
            setattr(call, name, q)
        message = error_of(lambda: _C.check_mha_bwd(call))
        assert message.startswith(f"q: a tensor on {device} ("), message
        assert "cuda:N, the GPU N of a HIP runtime" in message, message
    found = _C.rocm()
    assert found["devices"] == ["cuda:0 (Fake MI350X)", "cuda:1 (Fake MI350X)"]
    assert "fake_hip" in found["library"]
    assert found["runtime_version"] // 10_000_000 == 7
    assert fake.calls("hipModuleLoadData") == 0, "checking loads nothing"


def info(folder: Path) -> None:
    FakeHip()
    assert cli.main(["info", "--json"]) == 0


def selftest(folder: Path) -> None:
    """The runtime is found by the loader's search path; a GPU of the fake is right."""
    report = run_selftest(folder, 0, "rocm:1")
    assert report["first_failure"] == ""
    assert report["device"]["name"] == "cuda:1 (Fake MI350X)"
    kernels = {
        test["case"]: [launch["kernel"] for launch in test["launches"]] for test in report["tests"]
    }
    dense = [
        "mha_dot_do_o_bf16", "memset", "mha_dq_dk_dv_bf16_hd32", "mha_convert_dq_bf16",
        "mha_reduce_d_sink",
    ]  # fmt: skip
    packed = [
        "memset", "mha_prepare_sequences", "memset", "mha_dot_do_o_bf16", "mha_dq_dk_dv_bf16_hd32",
        "mha_dq_bf16_hd32", "mha_reduce_d_sink",
    ]  # fmt: skip
    assert kernels == {
        "bf16_hd32-full": dense, "bf16_hd32-causal": dense, "bf16_hd32-packed": packed
    }  # fmt: skip
    for test in report["tests"]:
        rules = {
            buffer["name"]: buffer["rule"]
            for launch in test["launches"]
            for buffer in launch["buffers"]
        }
        assert rules.keys() >= {
            "workspace row_lse", "workspace row_delta", "workspace d_sink_partial", "softmax_d",
            "dq", "dk", "dv", "d_sink", "q", "k", "v", "out", "dout", "memory",
        }  # fmt: skip


def selftest_of_a_corrupted_kernel(folder: Path) -> None:
    """The third product of dq_dk_dv is left out on the GPU."""
    name = "mha_dq_dk_dv_bf16_hd32"
    offsets = offsets_of(name, "v_mfma")
    FakeHip().patch(name, offsets[2], [S_NOP, S_NOP])
    report = run_selftest(folder, 1, "rocm")
    first = report["first_failure"]
    assert first.startswith(f"bf16_hd32-full: {name}: "), first
    assert "[batch 0, " in first, first
    assert " of tile 0 (" in first, first
    assert "on the device and" in first, first
    for test in report["tests"]:
        wrong = [launch["kernel"] for launch in test["launches"] if not launch["passed"]]
        assert wrong == [name], "the later kernels are right, given what the wrong one left them"
        assert test["gate_failures"], "float64 disagrees with it too"


def selftest_of_a_corrupted_bit(folder: Path) -> None:
    """An ulp in the constant of dot_do_o that no gate could see."""
    name = "mha_dot_do_o_bf16"
    fake = FakeHip()
    # row_lse = -log2(e) * lse; a literal is the last word of its instruction.
    literal = 0xBFB8AA3B
    ends = offsets_of(name, "", text=f"{literal:#x}", end=True)
    for end in ends:
        fake.patch(name, end - 4, [literal + 1])
    report = run_selftest(folder, 1, "rocm")
    first = report["first_failure"]
    assert first.startswith(f"bf16_hd32-full: {name}: workspace row_lse [batch 0, head 0, "), first
    assert " of tile 0 (queries 0 to 63)]" in first, first
    assert "allowed distance 0" in first, first
    assert not report["tests"][0]["gate_failures"]


def selftest_of_a_failing_launch(folder: Path) -> None:
    fake = FakeHip()
    fake.fail("hipModuleLaunchKernel", 3, LAUNCH_FAILURE)
    report = run_selftest(folder, 1, "rocm")
    first = report["first_failure"]
    assert first.startswith("bf16_hd32-full: mha_convert_dq_bf16: "), first
    assert "hipErrorLaunchFailure" in first, first
    assert len(report["tests"][0]["launches"]) == 3, "what came before is in the report"


def run_selftest(folder: Path, status: int, device: str):
    path = folder / "report.json"
    arguments = ["selftest", "--device", device, "--kernel", "bf16_hd32", "--json", str(path)]
    assert cli.main(arguments) == status
    report = json.loads(path.read_text())
    assert report["passed"] == (status == 0)
    return report


def offsets_of(kernel: str, mnemonic: str, text: str = "", end: bool = False) -> list[int]:
    """Where in the kernel's code the instructions of that name, holding that text, begin or end."""
    listing = _C.EmulatedObject(_C.kernel_binary(kernel), kernel).disassemble(kernel)
    lines = [line.partition(": ") for line in listing.splitlines()]
    at = [int(address, 16) for address, _, _ in lines]
    found = [
        at[i + end] - at[0]
        for i, (_, _, instruction) in enumerate(lines)
        if instruction.startswith(mnemonic) and text in instruction
    ]
    assert found, f"{kernel} has no {mnemonic} {text}"
    return found


def mha_bwd(inputs) -> None:
    case = inputs.case
    mha_sink.mha_bwd(
        inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse, 0.0, case.scale,
        case.causal, *case.window, False,
    )  # fmt: skip


def mha_varlen_bwd(inputs, deterministic: bool = False) -> None:
    case = inputs.case
    mha_sink.mha_varlen_bwd(
        inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse,
        inputs.packing.cu_seqlens_q, inputs.packing.cu_seqlens_k, max(case.seqlens_q),
        max(case.seqlens_k), 0.0, case.scale, False, case.causal, *case.window, deterministic,
        cu_seqlens_q_padded=inputs.packing.cu_seqlens_q_padded,
        cu_seqlens_k_padded=inputs.packing.cu_seqlens_k_padded,
        sink=inputs.sink, d_sink=torch.zeros(case.nhead_q),
    )  # fmt: skip


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except mha_sink.Error as error:
        return str(error)
    raise AssertionError("no error")


if __name__ == "__main__":
    scenario: Callable[[Path], None] = globals()[sys.argv[1]]
    scenario(Path(sys.argv[2]))
