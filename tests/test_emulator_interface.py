"""mha_sink.emulator: the examples of docs/emulator.md, and what it makes of arguments."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hip_compilers
from hip_compilers import Unavailable
from mha_sink import _C, EmulationError, cli, emulator

DOCUMENT = Path(__file__).parent.parent / "docs" / "emulator.md"


def code_block(language: str, title: str = "From Python") -> str:
    """The one code block of that language under that title."""
    section = DOCUMENT.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    (block,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return str(block)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """examples.co of the document, built by its command with some installed clang."""
    folder = tmp_path_factory.mktemp("examples")
    try:
        clang = hip_compilers.any_clang(folder / "compiler")
    except Unavailable as reason:
        pytest.skip(str(reason))
    (folder / "examples.hip").write_text(code_block("hip"))
    command = code_block("sh")
    assert command.startswith("clang++ ")
    subprocess.run(command.replace("clang++", clang, 1), shell=True, check=True, cwd=folder)
    return folder / "examples.co"


def test_the_documented_examples_run(examples, monkeypatch, capsys):
    monkeypatch.chdir(examples.parent)
    names: dict[str, Any] = {}
    exec(compile(code_block("python"), str(DOCUMENT), "exec"), names)
    assert "v_mfma_f32_16x16x32_bf16" in capsys.readouterr().out


def test_the_documented_launch_profiles(examples, tmp_path, capsys):
    spec = tmp_path / "launch.json"
    spec.write_text(code_block("json", "Profile"))
    assert cli.main(["profile", "object", str(examples), "--launch", str(spec), "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["kernels"]
    # 4000 bytes each.
    assert [report["buffers"][name]["lines"] for name in ("a", "b", "out")] == [32, 32, 32]


Launch = Callable[..., None]


@pytest.fixture
def add(examples) -> Launch:
    """Launches vector_add on one workgroup."""
    code = emulator.load(examples)
    return lambda args, **more: code.launch("vector_add", 1, 256, args, **more)


def arrays() -> list[Any]:
    return [np.full(256, 2, np.float32), np.full(256, 3, np.float32), np.zeros(256, np.float32)]


def test_numpy_arrays_scalars_and_a_raw_segment_are_arguments(add):
    for n in (256, np.int32(256), np.uint32(256), b"\0\1\0\0"):
        a, b, out = arrays()
        add([a, b, out, n])
        assert (out == 5).all()
    a, b, out = arrays()
    packed = struct.pack("<QQQi", a.ctypes.data, b.ctypes.data, out.ctypes.data, 256)
    add(packed, memory={"a": a, "b": b, "out": out})
    assert (out == 5).all()


def test_a_strided_tensor_spans_its_last_element(add):
    a, b, _ = arrays()
    out = torch.zeros(256, 2)
    add([a, b, out[:128, 0], 255])
    assert (out.flatten()[:255] == 5).all()
    with pytest.raises(EmulationError, match=r"lane 63.*past the end of out"):
        add({"a": a, "b": b, "out": out[:128, 0], "n": 256})


@pytest.mark.parametrize(
    ("index", "value", "error", "message"),
    [
        (0, 7, TypeError, r"argument 0 is a pointer; need .* not a int"),
        (2, torch.zeros(4, device="meta"), TypeError, "argument 2 is on meta"),
        (1, np.zeros(256, np.float32)[::-1], ValueError, "argument 1 has a negative stride"),
        (3, np.zeros(1, np.int32), TypeError, "argument 3 is passed by value, 4 bytes"),
        (3, np.int64(1), ValueError, "argument 3 has 4 bytes; 8 are given"),
        (3, b"12345", ValueError, "argument 3 has 4 bytes; 5 are given"),
        (3, 1 << 32, ValueError, "argument 3 is 4294967296, beyond an integer of 4 bytes"),
        (3, -(1 << 31) - 1, ValueError, "beyond an integer of 4 bytes"),
        (3, 1e300, ValueError, r"argument 3 is 1e\+300, beyond a float of 4 bytes"),
        (3, "256", TypeError, "argument 3 is a str"),
        (3, None, TypeError, "argument 3 is a NoneType"),
    ],
)  # fmt: skip
def test_an_argument_that_does_not_fit_the_metadata_is_named(add, index, value, error, message):
    args = [*arrays(), 256]
    args[index] = value
    with pytest.raises(error, match=f"vector_add: {message}" if "argument" in message else message):
        add(args)


def test_keys_name_arguments_in_messages(add):
    a, b, out = arrays()
    with pytest.raises(ValueError, match=r"argument 3 \(count\) is -2147483649"):
        add({"a": a, "b": b, "out": out, "count": -(1 << 31) - 1})
    out.flags.writeable = False
    with pytest.raises(EmulationError, match="of result, read-only"):
        add({"a": a, "b": b, "result": out, "n": 256})


def test_a_wrong_number_of_arguments_lists_what_is_needed(add):
    with pytest.raises(TypeError, match=r"3 arguments given, 4 needed: pointer.*value of 4 bytes"):
        add(arrays())
    with pytest.raises(EmulationError, match="arguments of 8 bytes given, 28"):
        add(b"12345678")


@pytest.mark.parametrize(
    ("grid", "block", "error", "message"),
    [
        (0, 64, EmulationError, r"grid of \(0, 1, 1\)"),
        ((1, 1, 1, 1), 64, ValueError, "grid has 4 dimensions"),
        ((), 64, ValueError, "grid has 0 dimensions"),
        (-1, 64, ValueError, "grid is -1"),
        (1.5, 64, TypeError, "grid is a float"),
        (1, 2048, EmulationError, "1 to 1024 work-items"),
        (1 << 31, 1024, EmulationError, "each axis needs 1 to"),
    ],
)
def test_absurd_launch_sizes_are_refused(examples, grid, block, error, message):
    with pytest.raises(error, match=message):
        emulator.load(examples).launch("vector_add", grid, block, [*arrays(), 0])


def test_unknown_kernels_files_and_too_much_lds_are_named(examples, tmp_path):
    code = emulator.load(examples)
    with pytest.raises(EmulationError, match=r"no_such.*vector_add"):
        code.launch("no_such", 1, 64, [])
    with pytest.raises(EmulationError, match="163844 bytes of LDS"):
        code.launch("vector_add", 1, 64, [*arrays(), 0], lds=160 * 1024 + 4)
    with pytest.raises(FileNotFoundError):
        emulator.load(tmp_path / "none.co")
    with pytest.raises(EmulationError, match="broken"):
        emulator.load(examples.read_bytes()[:100], "broken")


def test_profiles_add_up_over_launches(examples):
    code = emulator.load(examples)
    assert code.profile() == {}
    code.launch("vector_add", (2, 3), 256, [*arrays(), 0])
    once = code.profile()["vector_add"]
    code.launch("vector_add", (2, 3), 256, [*arrays(), 0], accesses=True)
    twice = code.profile()["vector_add"]
    assert (once["launches"], once["workgroups"], once["work_items"]) == (1, 6, 6 * 256)
    assert (twice["launches"], twice["workgroups"], twice["work_items"]) == (2, 12, 12 * 256)
    assert twice["executions"] == [2 * n for n in once["executions"]]
    assert twice["mnemonics"] == {name: 2 * n for name, n in once["mnemonics"].items()}
    assert "accesses" in twice
    assert "accesses" not in once
    assert len(code.disassemble("vector_add")) == len(twice["executions"])


def test_padding_arguments_of_handwritten_objects_are_filled():
    info = {"name": "pad", "kind": "by_value", "offset": 8, "size": 8}
    value = {"name": "n", "kind": "by_value", "offset": 16, "size": 4}
    pointer = {"name": "x", "kind": "global_buffer", "offset": 0, "size": 8}
    code = emulator.load(_C.kernel_binary(_C.kernels()[0]["name"]), "any")
    (name,) = code.kernels
    code.kernels[name]["arguments"] = [pointer, info, value]  # type: ignore[list-item]
    assert code._pack(name, [None, 5], []) == bytes(16) + b"\5\0\0\0"
