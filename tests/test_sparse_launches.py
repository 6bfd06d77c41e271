"""Sparse MLA's launches beside the emulator: what counts as a difference, and what is launched."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

from mha_sink import _C, cli
from mha_sink.cli.selftest import sparse_cases
from mha_sink.testing import SparseCase, make_sparse_inputs
from mha_sink.testing.sparse_launches import (
    as_tensor,
    compare,
    compare_sparse_launches,
    interm_tensor,
)


def launches_of(case: SparseCase):
    launches, started = [], []
    gate = compare_sparse_launches(make_sparse_inputs(case), "cpu", started.append, launches.append)
    assert [launch.kernel for launch in launches] == started
    return launches, gate


def test_every_kernel_is_launched_by_a_case_of_the_selftest():
    launched = set()
    for chosen in sparse_cases():
        small = dataclasses.replace(chosen.case, tokens=2, topk=64, num_pool=60)
        launches, _ = launches_of(small)
        assert all(launch.passed for launch in launches)
        launched |= {launch.kernel for launch in launches}
    of_library = {kernel["name"] for kernel in _C.kernels()}
    assert {name for name in of_library if name.startswith("sparse_mla_")} == launched - {"memset"}


def test_buffers_of_a_chunked_case():
    case = SparseCase("chunked", 5, 16, 64, num_pool=9, r_chunk=32)
    launches, gate = launches_of(case)
    assert gate.passed, str(gate)
    assert {tensor.name for tensor in gate.tensors} == {"o", "lse", "dq", "dkv", "d_sink"}
    buffers = {buffer.name: buffer for launch in launches for buffer in launch.buffers}
    assert buffers["plan entry"].rule == buffers["topk_indices"].rule == "bits"
    assert buffers["workspace interm"].elements == 5 * 32 * 512
    assert buffers["dkv"].rule == buffers["workspace dq_acc"].rule == "bound"
    assert buffers["dq"].elements == 5 * 16 * 512
    assert all(buffer.differing == buffer.over == 0 for buffer in buffers.values())


def test_selftest(tmp_path, capsys):
    path = tmp_path / "report.json"
    arguments = ["--device", "emulated", "--kernel", "dkv_slots_bf16_h32", "--json", str(path)]
    assert cli.main(["selftest", *arguments]) == 0
    assert "No difference beyond the rounding" in capsys.readouterr().out
    report = json.loads(path.read_text())
    assert [test["case"] for test in report["tests"]] == [
        "sparse_mla_bf16_h32", "sparse_mla_bf16_h32-uniform",
    ]  # fmt: skip
    assert all(test["passed"] for test in report["tests"])


@pytest.mark.parametrize("name", ["plan entry", "topk_indices", "plan slot_count"])
def test_integers_must_agree(name):
    emulated = torch.arange(1024, dtype=torch.int32)
    other = emulated.clone()
    other[513] ^= 1
    x, y = (as_tensor(name, t.numpy().tobytes(), torch.bfloat16) for t in (other, emulated))
    result = compare(name, x, y)
    assert (result.rule, result.differing, result.over) == ("bits", 1, 1)
    assert "row 1, column 1" in str(result.first)
    assert compare(name, y, y).over == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("change", "over"),
    [
        (lambda x: x * 1.002, 0),  # rounded to a neighbour, if at all
        (lambda x: -x, 1),
        (lambda x: x * 1.1, 1),
        (lambda x: x + math.inf, 1),
        (lambda x: x + math.nan, 1),
    ],
)
def test_the_largest_of_a_row_may_move_a_little(dtype, change, over):
    emulated = torch.randn(3, 512, generator=torch.Generator().manual_seed(0)).to(dtype)
    emulated[1, 100] = 8
    other = emulated.clone()
    other[1, 100] = change(other[1, 100].float()).to(dtype)
    result = compare("dq", other, emulated)
    assert (result.rule, result.over) == ("bound", over)
    assert result.elements == 3 * 512
    if over:
        assert "row 1, column 100" in str(result.first)


def test_rows_are_measured_by_themselves():
    """An error that vanishes beside the largest row is seen in a small one."""
    emulated = torch.ones(2, 512)
    emulated[1] = 1e-6
    other = emulated.clone()
    other[1, 3] = 2e-6
    assert compare("workspace dq_acc", other, emulated).over == 1
    other[1, 3] = 1e-6
    other[0, 3] = 1 + 2e-6
    assert compare("workspace dq_acc", other, emulated).over == 0


def test_integers_with_a_scale_are_compared_as_numbers():
    """One unit is rounding; the same integers with another scale are not."""
    integers = torch.randint(-16384, 16384, (3, 512), dtype=torch.int16)
    integers[:, 0] = 16383
    scale = torch.tensor([1.0, 2.0**-20, 2.0**9])

    def side(change: int, factor: float) -> torch.Tensor:
        changed = integers + change * (torch.arange(512) == 7)
        return interm_tensor(
            changed.to(torch.int16).numpy().tobytes(), (scale * factor).numpy().tobytes()
        )

    assert compare("workspace interm", side(1, 1), side(0, 1)).over == 0
    assert compare("workspace interm", side(40, 1), side(0, 1)).over == 3
    assert compare("workspace interm", side(0, 2), side(0, 1)).over > 0


def test_nan_on_both_sides_is_no_difference():
    block = torch.full((2, 512), math.nan, dtype=torch.bfloat16)
    result = compare("dq", block, block.clone())
    assert result.differing == result.over == 0
    assert result.error == 0
