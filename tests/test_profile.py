"""The profile: bounds and occupancy from counts, launch specs, and the command line."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mha_sink import _C, cli
from mha_sink.profiling import hardware
from mha_sink.profiling.bounds import Work, bounds
from mha_sink.profiling.launch_spec import LaunchSpec, read_launch_spec
from mha_sink.profiling.model import model_mha_bwd
from mha_sink.profiling.report import profile_mha_bwd, useful_flops, visible_pairs
from mha_sink.reference.dense import visible_keys
from mha_sink.testing import case

CASE = "smoke/d64-causal"


def test_bounds_follow_from_counts():
    work = Work(
        executions={
            "mfma": {"v_mfma_f32_16x16x32_bf16": 100, "v_mfma_f32_32x32x16_bf16": 50},
            "valu": {"v_add_f32": 30, "v_permlane32_swap_b32": 10},
            "accvgpr": {"v_accvgpr_read_b32": 10},
            "trans": {"v_exp_f32": 20},
            "salu": {"s_add_i32": 20},
        },
        lds_clocks=600, vmem_lines=40, atomic_bytes=110, workgroups=2, waves_per_simd=2,
    )  # fmt: skip
    found = {bound.unit: bound for bound in bounds(work)}
    assert {unit: bound.clocks for unit, bound in found.items()} == pytest.approx({
        "MFMA": (100 * 16 + 50 * 32) / 4 / 2,
        "VALU": (40 * 4 + 10 * 8) / 4 / 2,
        "transcendental": 20 * 16 / 4 / 2,
        "LDS": 300,
        "VMEM": 40 * 128 / 64 / 2,
        "atomics": 110 / (1.32e12 / 256 / 2.4e9) / 2,
        "issue": 240 * 4 / (4 * 2) / 2,
    })  # fmt: skip
    assert found["MFMA"].formula == "(100 x 16 clk + 50 x 32 clk) / 4 SIMDs / 2 workgroups"


def test_an_mfma_of_unknown_rate_is_named_and_left_out():
    unknown = "v_mfma_f32_4x4x4_16b_f16"
    work = Work({"mfma": {unknown: 5}}, 0, 0, 0, workgroups=1, waves_per_simd=1)
    mfma = bounds(work)[0]
    assert mfma.clocks == 0
    assert mfma.formula.startswith("(0) / 4 SIMDs without 5 of unknown rate")
    assert hardware.mfma_flops(unknown) == 2 * 4 * 4 * 4 * 16


@pytest.mark.parametrize(
    ("mnemonic", "clocks", "flops"),
    [
        ("v_mfma_f32_32x32x16_bf16", 32, 32768), ("v_mfma_f32_16x16x32_f16", 16, 16384),
        ("v_mfma_f32_16x16x16_bf16", 16, 8192), ("v_mfma_i32_32x32x32_i8", 32, 65536),
        ("v_mfma_f32_32x32x2_f32", 64, 4096), ("v_add_f32", None, 0),
    ],
)  # fmt: skip
def test_matrix_instructions(mnemonic, clocks, flops):
    assert (hardware.mfma_clocks(mnemonic), hardware.mfma_flops(mnemonic)) == (clocks, flops)


@pytest.mark.parametrize(
    ("registers", "lds_bytes", "waves", "expected"),
    [
        (512, 163840, 4, (1, 1, "LDS")),
        (32, 1280, 4, (8, 8, "wave slots")),
        (512, 0, 4, (1, 1, "registers")),
        (256, 0, 4, (2, 2, "registers")),
        (257, 0, 4, (1, 1, "registers")),  # granules of 8: 264, and 2 x 264 > 512
        (64, 65536, 4, (2, 2, "LDS")),
        (64, 65537, 4, (2, 2, "LDS")),
        (64, 0, 16, (8, 2, "registers")),
        (16, 0, 1, (8, 32, "wave slots")),
        (16, 0, 2, (8, 16, "barriers")),
    ],
)
def test_occupancy(registers, lds_bytes, waves, expected):
    assert hardware.waves_per_simd(registers, lds_bytes, waves) == expected


@pytest.mark.parametrize("lengths", [(113, 203), (203, 113), (64, 64), (1, 5), (5, 1), (0, 3)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (0, 0), (40, 20), (-1, 50), (7, -1), (300, 300)])
def test_visible_pairs_are_those_of_the_reference(lengths, causal, window):
    assert visible_pairs(*lengths, causal, window) == visible_keys(*lengths, causal, window).sum()


def test_useful_flops_count_visible_pairs():
    assert useful_flops(case("smoke/d64")) == 10 * 2 * 128 * 128 * 64
    assert useful_flops(case("smoke/d64-causal")) == 10 * 2 * (128 * 129 // 2) * 64
    pairs = 113 * 203 * 2
    assert useful_flops(case("hdim/d64-v128")) == 2 * pairs * (3 * 64 + 2 * 128)
    assert useful_flops(case("packed/equal")) == 10 * 4 * 2 * 64 * 64 * 64


def test_a_deterministic_call_shares_the_products():
    kernels = {report.kernel: report for report in profile_mha_bwd(case(CASE), deterministic=True)}
    main, dq = kernels["mha_dq_dk_dv_bf16_hd64"], kernels["mha_dq_bf16_hd64"]
    assert main.useful_flops == 4 * dq.useful_flops == 0.8 * useful_flops(case(CASE))
    assert main.useful_flops <= main.mfma_flops
    assert 3 * dq.useful_flops <= dq.mfma_flops


def test_a_profile_of_mha_bwd_is_consistent():
    reports = profile_mha_bwd(case(CASE))
    main = reports[0]
    assert main.kernel.startswith("mha_dq_dk_dv_")
    assert main.useful_flops is not None
    assert 0 < main.useful_flops <= main.mfma_flops
    for report in reports:
        assert sum(report.classes.values()) == report.wave_instructions
        assert sum(report.mnemonics.values()) == report.wave_instructions
        assert report.lds_least_clocks <= report.lds_clocks
        assert report.compulsory_bytes <= report.l2_bytes
        assert 0 < sum(block.share for block in report.blocks) <= 1
    # bf16 [1, 128, 2, 64] each: every line once.
    lines = 128 * 2 * 64 * 2 // 128
    assert {name: main.buffers[name]["lines"] for name in ("q", "k", "v", "dout", "dk", "dv")} == (
        dict.fromkeys(("q", "k", "v", "dout", "dk", "dv"), lines)
    )


# Of the JSON: scripts read it.
KERNEL_KEYS = {
    "kernel", "launches", "workgroups", "waves_per_workgroup", "wave_instructions", "classes",
    "mnemonics", "per_mfma", "registers", "accumulation_registers", "sgpr", "vgpr_spills",
    "lds_bytes", "scratch_bytes", "waves_per_simd", "workgroups_per_cu", "occupancy_limit",
    "bounds", "lds_clocks", "lds_least_clocks", "conflicts", "buffers", "compulsory_bytes",
    "l2_bytes", "mfma_flops", "useful_flops", "blocks",
}  # fmt: skip
UNITS = ["MFMA", "VALU", "transcendental", "LDS", "VMEM", "atomics", "issue"]


def test_json_of_mha_bwd(capsys):
    assert cli.main(["profile", "mha_bwd", "--case", CASE, "--json", "--blocks", "1"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert {k["kernel"] for k in kernels} >= {"mha_dq_dk_dv_bf16_hd64", "mha_reduce_d_sink"}
    for kernel in kernels:
        assert set(kernel) == KERNEL_KEYS
        assert [bound["unit"] for bound in kernel["bounds"]] == UNITS
        assert all(set(bound) == {"unit", "clocks", "formula"} for bound in kernel["bounds"])
        (block,) = kernel["blocks"]
        # And "source" with line tables: MHA_SINK_KERNEL_LINES.
        assert set(block["sites"][0]) - {"source"} == {
            "address", "text", "executions", "lds_clocks", "lds_least_clocks",
        }  # fmt: skip


def test_text_of_mha_bwd(capsys):
    assert cli.main(["profile", "mha_bwd", "--case", CASE, "--seqlen", "40"]) == 0
    text = capsys.readouterr().out
    for part in ("mha_dq_dk_dv_bf16_hd64", "  MFMA: ", "L2 bytes", "v_mfma_", "by workgroups"):
        assert part in text


MODEL_KEYS = {
    "kernel", "workgroups", "resident", "clocks", "busy", "balance", "compute_clocks", "hbm_bytes",
    "clock_ghz", "mfma_flops", "hbm_clocks", "device_clocks", "modelled_seconds", "useful_flops",
    "modelled_tflops",
}  # fmt: skip


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_model_of_mha_bwd_has_every_launch(capsys, deterministic):
    command = ["profile", "mha_bwd", "--case", CASE, "--seqlen", "600", "--heads", "8/4", "--batch",
               "2", "--model", "--json"]  # fmt: skip
    assert cli.main([*command, *(["--deterministic"] if deterministic else [])]) == 0
    model = json.loads(capsys.readouterr().out)["model"]
    assert model["label"].startswith("MODEL")
    kernels = {kernel["kernel"]: kernel for kernel in model["kernels"]}
    assert list(kernels) == [
        "mha_dot_do_o_bf16",
        *(["mha_dq_dk_dv_bf16_hd64", "mha_dq_bf16_hd64"] if deterministic
          else ["memset", "mha_dq_dk_dv_bf16_hd64", "mha_convert_dq_bf16"]),
        "mha_reduce_d_sink",
    ]  # fmt: skip
    assert all(set(kernel) == MODEL_KEYS for kernel in kernels.values())
    main = kernels["mha_dq_dk_dv_bf16_hd64"]
    assert main["workgroups"] == 4 * 3 * 2
    whole = 10 * 2 * 8 * (600 * 601 // 2) * 64
    assert main["useful_flops"] == (0.8 if deterministic else 1.0) * whole
    assert model["call"]["useful_flops"] == whole
    assert 0 < main["busy"]["mfma"] < 1
    # Workgroups of the last keys see few queries, and all compute units have room.
    assert main["clocks"] < 0.8 * main["compute_clocks"]
    assert main["device_clocks"] == max(main["compute_clocks"], main["hbm_clocks"])
    call = model["call"]
    assert call["modelled_seconds"] == pytest.approx(
        sum(kernel["modelled_seconds"] for kernel in kernels.values())
    )


def test_the_model_agrees_with_what_runs():
    """A sample of the workgroups says of bytes and unit clocks what counting all of them says."""
    chosen = dataclasses.replace(case("smoke/d64"), seqlen_q=512, seqlen_k=512)
    counted = {report.kernel: report for report in profile_mha_bwd(chosen)}
    for kernel in model_mha_bwd(chosen):
        if kernel.kernel == "memset":
            assert kernel.timing.hbm_bytes == 512 * 2 * 64 * 4  # fp32 dq
            continue
        report, timing = counted[kernel.kernel], kernel.timing
        assert timing.workgroups == report.workgroups
        assert timing.hbm_bytes == pytest.approx(report.compulsory_bytes, rel=0.01)
        assert timing.mfma_flops == pytest.approx(report.mfma_flops)
        for unit, bound in zip(("mfma", "valu", "trans"), report.bounds, strict=False):
            modelled = timing.busy[unit] * timing.clocks / timing.resident
            assert modelled == pytest.approx(bound.clocks, rel=0.01), (kernel.kernel, unit)


Spec = Callable[..., Path]


def reduce_d_sink(**changes: Any) -> dict[str, Any]:
    """A launch of mha_reduce_d_sink with an all-zero parameter struct."""
    (info,) = (k for k in _C.kernels() if k["name"] == "mha_reduce_d_sink")
    words = info["kernarg_bytes"] // 8
    args = [{"name": f"word {i}", "dtype": "uint64", "value": 0} for i in range(words)]
    return {"grid": 1, "block": 64, "slot": 8, "args": args, **changes}


@pytest.fixture
def write(tmp_path: Path) -> Spec:
    def file(content: Any) -> Path:
        path = tmp_path / "launch.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return file


@pytest.fixture
def elf(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.co"
    path.write_bytes(_C.kernel_binary("mha_reduce_d_sink"))
    return path


def test_launch_specs_make_arguments(write):
    args = [
        {"name": "x", "dtype": "bfloat16", "shape": [2, 3], "fill": "normal"},
        {"name": "y", "dtype": "float32", "shape": 4, "fill": 1.5},
        {"name": "n", "dtype": "int32", "value": -2},
        {"name": "none", "null": True},
    ]
    path = write({"grid": [2, 1], "block": 64, "args": args, "lds": 16})
    spec = read_launch_spec(path)
    assert isinstance(spec, LaunchSpec)
    assert (spec.grid, spec.block, spec.lds, spec.kernel) == ((2, 1), (64,), 16, None)
    x, y, n, none = spec.args.values()
    assert x.shape == (2, 3)
    assert x.equal(read_launch_spec(path).args["x"])
    assert y.tolist() == [1.5] * 4
    assert n == b"\xfe\xff\xff\xff"
    assert none is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no JSON"),
        ([], "holds a list"),
        ({"grid": 1, "block": 64}, "has no args"),
        (reduce_d_sink(grids=3), "unknown keys grids"),
        (reduce_d_sink(grid=-1), "grid is -1"),
        (reduce_d_sink(grid=[1, 1, 1, 1]), "grid has 4 dimensions"),
        (reduce_d_sink(grid=0), r"grid of \(0, 1, 1\)"),
        (reduce_d_sink(kernel="other"), "other"),
        (reduce_d_sink(args=3), "args is no list"),
        (reduce_d_sink(args=[3]), r"args\[0\] is no object"),
        (reduce_d_sink(args=[{"name": "x"}]), r'args\[0\] \(x\) has neither "shape"'),
        (reduce_d_sink(args=[{"dtype": "int9", "value": 1}]), "dtype is int9"),
        (reduce_d_sink(args=[{"dtype": "int8", "value": 200}]), "200 is no int8"),
        (reduce_d_sink(args=[{"dtype": "uint32", "shape": [1]}]), "dtype is uint32; an array"),
        (reduce_d_sink(args=[{"dtype": "int8", "shape": [1], "fill": "x"}]), "fill is 'x'"),
        (reduce_d_sink(args=[{"name": "x", "null": True}] * 2), "x is given twice"),
        (reduce_d_sink(slot=4), "more than a slot of 4"),
        (reduce_d_sink(args=[]), "arguments of 0 bytes given"),
        (reduce_d_sink(slot=0), "arguments given, 1 needed"),
    ],
)
def test_a_bad_launch_spec_is_refused_by_name(elf, write, capsys, content, message):
    assert cli.main(["profile", "object", str(elf), "--launch", str(write(content))]) == 2
    error = capsys.readouterr().err
    assert error.startswith("mha_sink profile: ")
    assert re.search(message, error), error


def test_bad_files_cases_and_options_are_refused(elf, write, capsys, tmp_path):
    spec = str(write(reduce_d_sink()))
    broken = tmp_path / "broken.co"
    broken.write_bytes(elf.read_bytes()[:200])
    for arguments, message in (
        (["object", str(tmp_path / "none.co"), "--launch", spec], "No such file"),
        (["object", str(broken), "--launch", spec], "broken.co"),
        (["object", str(elf), "--launch", str(tmp_path / "none.json")], "No such file"),
        (["mha_bwd", "--case", "no/such"], "no case 'no/such'"),
        (["mha_bwd", "--case", CASE, "--seqlen", "0"], "--seqlen is 0"),
        (["mha_bwd", "--case", "packed/one", "--seqlen", "9"], "not packed"),
        (["mha_bwd", "--case", "packed/one", "--model"], "packed/one is packed; the model needs"),
        (["mha_bwd", "--case", CASE, "--batch", "0"], "--batch is 0"),
        (["mha_bwd", "--case", CASE, "--heads", "6/4"], "--heads is 6/4; need 64, or 64/8"),
        (["mha_bwd", "--case", CASE, "--heads", "x"], "--heads is x"),
        (["mha_bwd", "--case", CASE, "--launch", spec], "go together"),
    ):
        assert cli.main(["profile", *arguments]) == 2
        assert message in capsys.readouterr().err
