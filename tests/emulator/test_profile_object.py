"""`profile object` on a kernel that is not the library's, alone and beside ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from emulated import KERNELS, source_line
from mha_sink import cli

# Every lane of both workgroups reads the same dword of x.
LAUNCH: dict[str, Any] = {
    "kernel": "global_accesses", "grid": 2, "block": 64, "useful_flops": 7,
    "args": [
        {"name": "x", "dtype": "uint8", "shape": [4096]},
        {"name": "offsets", "dtype": "int32", "shape": [64], "fill": 256},
        {"name": "sums", "dtype": "int32", "shape": [64]},
        {"name": "out", "dtype": "int32", "shape": [2, 64]},
    ],
}  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "launch.json"
    path.write_text(json.dumps(LAUNCH))
    return path


def test_an_object_alone_and_beside_ours(kernel_folder, spec, capsys):
    launch = [str(kernel_folder / "access.co"), "--launch", str(spec), "--json"]
    assert cli.main(["profile", "object", *launch]) == 0
    (alone,) = json.loads(capsys.readouterr().out)["kernels"]
    assert alone["kernel"] == "global_accesses"
    assert alone["useful_flops"] == 7
    assert alone["per_mfma"] is None
    assert alone["buffers"]["x"]["lines"] == 1
    assert alone["buffers"]["x"]["workgroup_lines"] == 2
    assert cli.main(["profile", "mha_bwd", "--case", "smoke/d64", "--beside", *launch]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert kernels[-1] == alone
    assert any(kernel["kernel"].startswith("mha_dq_dk_dv_") for kernel in kernels)


def test_conflicts_and_blocks_name_source_lines(kernel_folder, spec, capsys):
    spec.write_text(
        json.dumps({"kernel": "lds_conflicts", "grid": 1, "block": 64, "lds": 16384, "args": []})
    )
    launch = ["profile", "object", str(kernel_folder / "access.co"), "--launch", str(spec)]
    line = source_line(KERNELS / "access.hip", "// the conflict")
    assert cli.main([*launch, "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    (conflict,) = kernel["conflicts"]
    assert conflict["source"] == {"file": "tests/kernels/access.hip", "line": line}
    assert conflict in kernel["blocks"][0]["sites"]
    assert cli.main(launch) == 0
    text = capsys.readouterr().out
    for part in (r"^bank conflicts: .* ds_read_b32", r"^ +1  \w+: ds_read_b32"):
        assert re.search(rf"{part} v\d+, v\d+ \(access\.hip:{line}\)", text, re.M), text


def test_the_model_of_an_object_alone_and_beside_ours(kernel_folder, spec, capsys):
    launch = [str(kernel_folder / "access.co"), "--launch", str(spec), "--model"]
    assert cli.main(["profile", "object", *launch, "--json"]) == 0
    model = json.loads(capsys.readouterr().out)["model"]
    (alone,) = model["kernels"]
    assert alone["kernel"] == "global_accesses"
    assert alone["workgroups"] == 2
    assert alone["hbm_bytes"] == 128 * (1 + 2 + 2 + 4)  # x, offsets, sums, out
    assert alone["useful_flops"] == 7
    assert "call" not in model
    assert cli.main(["profile", "mha_bwd", "--case", "smoke/d64", "--beside", *launch]) == 0
    text = capsys.readouterr().out
    assert "MODEL: no clock of it was measured" in text
    assert "global_accesses" in text
    assert "whole call, MODEL at the nominal 2.4 GHz: " in text


def test_a_kernel_must_be_named_where_there_are_several(kernel_folder, spec, capsys):
    spec.write_text(json.dumps({k: v for k, v in LAUNCH.items() if k != "kernel"}))
    command = ["profile", "object", str(kernel_folder / "access.co"), "--launch", str(spec)]
    assert cli.main(command) == 2
    assert "global_accesses" in capsys.readouterr().err
