"""`python -m mha_sink`: info and demo."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import mha_sink
from mha_sink import cli
from mha_sink.cli import acceptance, demo, table

KERNELS = {
    "mha_dot_do_o_bf16", "mha_dot_do_o_fp16", "mha_convert_dq_bf16", "mha_convert_dq_fp16",
    "mha_reduce_d_sink",
    *(f"mha_dq_dk_dv_{dtype}_hd{hdim}" for dtype in ("bf16", "fp16")
      for hdim in (32, 64, 96, 128, 160, "192x128", 192, 256)),
}  # fmt: skip
SMALL = ["demo", "--seqlen", "64", "--heads", "8", "--kv-heads", "1", "--window", "17"]


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text"
    path.write_text(mha_sink.mha_bwd.__doc__ or "")
    return str(path)


def test_info_as_json():
    done = subprocess.run(
        [sys.executable, "-m", "mha_sink", "info", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["version"] == mha_sink.__version__
    assert report["torch"] == torch.__version__
    assert report["build"]["hip_compiler"]
    assert report["build"]["hip_compiler_reason"]
    assert report["devices"][0]["device"] == "cpu"
    assert "emulated" in report["devices"][0]["runs"]
    assert report["self_test"]["passed"]
    kernels = {kernel["name"]: kernel for kernel in report["kernels"]}
    assert kernels.keys() >= KERNELS
    for name, kernel in kernels.items():
        assert list(kernel) == [
            "name", "vgpr", "agpr", "sgpr", "lds_bytes", "vgpr_spills", "scratch_bytes",
            "accvgpr_per_mfma",
        ], name  # fmt: skip
        assert kernel["vgpr_spills"] == kernel["scratch_bytes"] == 0, name
        # 512 registers a lane, AGPRs counted in; 16 left free for another compiler version.
        assert kernel["agpr"] <= kernel["vgpr"] <= 512 - 16, name
        assert kernel["lds_bytes"] <= 160 * 1024, name
        assert kernel["accvgpr_per_mfma"] <= 0.1, name


def test_info_as_text(capsys):
    assert cli.main(["info"]) == 0
    printed = capsys.readouterr().out
    for word in ("HIP compiler", "chosen because", "emulated on", "Self-test", "pass", *KERNELS):
        assert word in printed


def test_info_needs_no_extras(monkeypatch, capsys):
    monkeypatch.setattr(table, "rich", None)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec",
        lambda name, *rest: None if name in ("transformers", "rich") else find_spec(name, *rest),
    )  # fmt: skip
    assert cli.main(["info", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["transformers"] is report["rich"] is None
    assert cli.main([*SMALL]) == 2
    assert "pip install 'mha_sink[demo]'" in capsys.readouterr().err


def test_info_exits_1_when_its_self_test_fails(monkeypatch, capsys):
    monkeypatch.setattr(mha_sink, "mha_bwd", wrong_backward)
    assert cli.main(["info"]) == 1
    assert "FAIL" in capsys.readouterr().out


def wrong_backward(*arguments, **options):
    results = mha_sink.mha.mha_bwd(*arguments, **options)
    results[0][:, 0] += 1
    return results


def test_demo(capsys, text):
    pytest.importorskip("transformers")
    assert cli.main([*SMALL, "--text", text]) == 0
    printed = capsys.readouterr().out
    assert "sliding window of 17" in printed
    assert "full causal attention" in printed
    assert "emulated on CPU" in printed
    assert "mha_dq_dk_dv_bf16_hd64" in printed
    assert "Every gate passed." in printed
    for name in ("dq", "dk", "dv", "d_sink"):
        assert printed.count(f"\n{name} ") == 2, name


def test_demo_exits_1_when_a_gate_fails(monkeypatch, capsys, text):
    pytest.importorskip("transformers")
    monkeypatch.setattr(mha_sink, "mha_bwd", wrong_backward)
    assert cli.main([*SMALL, "--text", text]) == 1
    assert "A gate FAILED." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--heads", "6", "--kv-heads", "4"], "--heads is 6 and --kv-heads 4; need a multiple"),
        (["--seqlen", "10000000"], "--seqlen is 10000000; give a longer file"),
        (["--text", "/no/such/file"], "/no/such/file: No such file"),
    ],
)
def test_demo_refuses(arguments, message, capsys, text):
    pytest.importorskip("transformers")
    assert cli.main(["demo", "--text", text, *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_demo_says_which_head_dims_exist(capsys, text):
    pytest.importorskip("transformers")
    assert cli.main([*SMALL, "--text", text, "--head-dim", "264"]) == 2
    assert "head dim" in capsys.readouterr().err


def test_demo_reads_the_installed_readme():
    installed = pytest.importorskip("importlib.metadata").distributions()
    if not any(d.metadata["Name"] == "mha_sink" for d in installed):
        pytest.skip("mha_sink is not installed, only on the path")
    assert b"mha_sink" in demo.read_text(None, 512)


@pytest.mark.parametrize("seqlen", ["0", "-1", "many"])
def test_bad_numbers(seqlen, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["demo", "--seqlen", seqlen])
    assert caught.value.code == 2
    assert "--seqlen" in capsys.readouterr().err


def test_recorded_attention_is_that_of_transformers():
    pytest.importorskip("transformers")
    from mha_sink.cli.gpt_oss import Recorder, small_gpt_oss

    tokens = torch.arange(40)[None] * 5 % 256
    model = small_gpt_oss(8, 2, 16, window=9, max_seqlen=64, dtype=torch.float32)
    recorder = Recorder()
    with recorder.recording(model):
        recorder.spread_sinks(model, tokens)
        logits = model(tokens).logits
    model.set_attn_implementation("eager")
    torch.testing.assert_close(logits, model(tokens).logits, rtol=1e-4, atol=1e-4)
    assert [layer.mask["window"] for layer in recorder.layers] == [(8, 0), (-1, 0)]
    for layer in recorder.layers:
        spread = layer.sink - layer.lse.mean((0, 2))
        assert spread.min() < -10
        assert spread.max() > -1  # the lse includes the sink: it cannot lie far below it


def test_plain_table():
    assert table.plain_lines(("name", "n"), [("a", "10"), ("long name", "7")]) == [
        "name        n",
        "---------  --",
        "a          10",
        "long name   7",
    ]


def test_selftest_grid(monkeypatch, capsys):
    some = acceptance.acceptance_grid()[:3]
    monkeypatch.setattr(acceptance, "acceptance_grid", lambda strength: some)
    assert cli.main(["selftest", "--grid", "sampled"]) == 0
    printed = capsys.readouterr().out
    assert "3 cases, 0 failed" in printed
    for name in ("dq", "dk", "dv", "softmax_d"):
        assert f"\n{name} " in printed


def test_selftest_grid_names_what_failed(monkeypatch, capsys):
    some = acceptance.acceptance_grid()[:2]
    monkeypatch.setattr(acceptance, "acceptance_grid", lambda strength: some)
    monkeypatch.setattr(mha_sink, "mha_bwd", wrong_backward)
    monkeypatch.setattr(mha_sink, "mha_varlen_bwd", wrong_varlen_backward)
    assert cli.main(["selftest", "--grid", "full"]) == 1
    printed = capsys.readouterr().out
    assert f"FAILED {some[0]}: dq" in printed
    assert "2 cases, 2 failed" in printed


def wrong_varlen_backward(*arguments, **options):
    results = mha_sink.mha.mha_varlen_bwd(*arguments, **options)
    results[0][0] += 1
    return results


@pytest.mark.parametrize("other", [["--device", "rocm"], ["--kernel", "hd64"]])
def test_selftest_grid_takes_nothing_else(other, capsys):
    assert cli.main(["selftest", "--grid", "sampled", *other]) == 2
    assert "--grid runs on the emulator" in capsys.readouterr().err
