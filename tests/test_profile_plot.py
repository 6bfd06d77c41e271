"""The picture of the timing MODEL."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from mha_sink import cli
from mha_sink.profiling import plot
from mha_sink.profiling.model import model_mha_bwd
from mha_sink.testing import case

COMMAND = ["profile", "mha_bwd", "--case", "smoke/d64"]


def test_a_timeline_has_each_wave_and_unit():
    main = next(
        kernel for kernel in model_mha_bwd(case("smoke/d64"), timeline_clocks=20_000)
        if kernel.useful_flops
    )  # fmt: skip
    spans = main.timing.timeline
    assert {wave for wave, *_ in spans} == {0, 1, 2, 3}
    assert {kind for _, kind, *_ in spans} >= {"mfma", "valu", "trans", "lds", "vmem"}
    assert all(begin < 20_000 for *_, begin, _ in spans)
    for wave in range(4):
        for matrix in (True, False):
            own = [span for span in spans if span[0] == wave and (span[1] == "mfma") == matrix]
            assert all(a[3] <= b[2] for a, b in itertools.pairwise(own))
            assert all(begin < end for *_, begin, end in own)
    assert not model_mha_bwd(case("smoke/d64"))[2].timing.timeline


def test_the_peak_is_the_data_sheets():
    assert plot.peak_tflops() == pytest.approx(2517, abs=1)


def test_a_picture_is_drawn(tmp_path: Path, capsys):
    pytest.importorskip("matplotlib")
    path = tmp_path / "model.png"
    assert cli.main([*COMMAND, "--model", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    text = tmp_path / "model.svg"
    assert cli.main([*COMMAND, "--model", "--plot", str(text)]) == 0
    assert "mha_dq_dk_dv_bf16_hd64" in text.read_text()  # in the comments of each glyph run
    capsys.readouterr()


def test_what_a_picture_needs_is_said(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    path = str(tmp_path / "model.png")
    assert cli.main([*COMMAND, "--plot", path]) == 2
    assert f"--plot is {path}; it needs --model" in capsys.readouterr().err
    assert cli.main([*COMMAND, "--model", "--plot", "model.txt"]) == 2
    assert "--plot is model.txt; need a file that ends in .png" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main([*COMMAND, "--model", "--plot", path]) == 2
    assert "needs matplotlib" in (error := capsys.readouterr().err)
    assert "pip install 'mha_sink[plot]'" in error
