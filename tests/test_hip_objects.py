"""The kernels as other HIP compilers make them: the same source keeps the register rules and meets
the gate in the emulator, whichever LLVM compiled it. Their instructions differ and may."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import hip_compilers
from emulated import elf_sections
from mha_sink import _C
from wheels import Unavailable

pytestmark = pytest.mark.skipif(
    "MHA_SINK_BUILD_DIR" not in os.environ,
    reason="needs MHA_SINK_BUILD_DIR, a build tree with the host code's objects",
)

REGISTERS, LEFT_FREE = 512, 16  # a lane's; for what yet another compiler version may need


def compiler_path(name: str, folder: Path) -> str:
    """What MHA_SINK_HIP_COMPILER is to be; skips where there is none."""
    try:
        if name in hip_compilers.WHEELS:
            return str(hip_compilers.zig_of_wheel(hip_compilers.WHEELS[name]))
        path = "zig clang" if name == "ziglang" else shutil.which(name)
        if path is None:
            raise Unavailable(f"no {name} is installed")
        if path == _C.build_info()["hip_compiler"]:
            raise Unavailable(f"{name} built the library: all other tests run its kernels")
        hip_compilers.command_of(name, folder)
    except Unavailable as reason:
        pytest.skip(str(reason))
    return name


def build(compiler: str, folder: Path, kernels: Sequence[str] = ()) -> None:
    """Leaves package/mha_sink/_C.so and kernels/*.co in `folder`; of all kernels by default."""
    definitions = {
        "MHA_SINK_HIP_COMPILER": compiler,
        "MHA_SINK_PYTHON": sys.executable,
        "MHA_SINK_BUILD_DIR": os.environ["MHA_SINK_BUILD_DIR"],
        "ONLY_KERNELS": ";".join(kernels),
    }
    sources = Path(__file__).parent / "hip_objects"
    configure = [hip_compilers.cmake(), "-S", str(sources), "-B", str(folder)]
    configure += [f"-D{name}={value}" for name, value in definitions.items()]
    for command in (configure, [hip_compilers.cmake(), "--build", str(folder), "-j2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    package = Path(_C.__file__).parent
    for file in package.iterdir():
        if not file.name.startswith(("_C.", "__pycache__")):
            (folder / "package" / "mha_sink" / file.name).symlink_to(file.resolve())


def clang_versions(elf: bytes) -> set[str]:
    """What compilers and linkers wrote into the object."""
    comment = elf_sections(elf)[".comment"]
    text = elf[comment.offset : comment.offset + comment.size].decode()
    return set(re.findall(r"clang version ([0-9.]+)", text))


def check_rules(name: str, elf: bytes) -> None:
    """No scratch, no spills, registers left, no accumulator moves in the hottest loop."""
    code = _C.EmulatedObject(elf, name)
    (kernel,) = code.kernels
    assert kernel["name"] == name
    assert kernel["scratch_bytes"] == kernel["vgpr_spills"] == 0, kernel
    assert "v_writelane" not in code.disassemble(name), f"{name} spills scalar registers"
    assert kernel["vgpr"] <= REGISTERS - LEFT_FREE, kernel
    assert kernel["accvgpr_per_mfma"] == 0, kernel


@pytest.mark.parametrize("name", [kernel["name"] for kernel in _C.kernels()])
def test_embedded(name: str) -> None:
    check_rules(name, _C.kernel_binary(name))


@pytest.mark.parametrize(
    "name",
    [
        "ziglang",
        *hip_compilers.INSTALLED,
        "LLVM 20",
        pytest.param("LLVM 21", marks=pytest.mark.full),
    ],
)
def test_kernels_of(name: str, tmp_path: Path) -> None:
    compiler = compiler_path(name, tmp_path / "compiler")
    folder = tmp_path / "build"
    build(compiler, folder)
    objects = sorted((folder / "kernels").glob("*.co"))
    assert {path.stem for path in objects} == {kernel["name"] for kernel in _C.kernels()}
    for path in objects:
        check_rules(path.stem, path.read_bytes())

    gate = Path(__file__).parent / "hip_objects" / "gate.py"
    done = subprocess.run(
        [sys.executable, str(gate), str(torch.get_num_threads())],
        env={**os.environ, "PYTHONPATH": str(folder / "package")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert Path(report["extension"]).is_relative_to(folder)
    assert report["failed"] == {}
    assert report["launched"] == [path.stem for path in objects]
    # `info` names the compiler that the objects themselves name.
    (version,) = set.union(*(clang_versions(path.read_bytes()) for path in objects))
    assert f"clang {version}" in report["build"]["hip_compiler_version"]


def test_hipcc_makes_the_objects_of_its_clang(tmp_path: Path) -> None:
    """The options that hipcc adds change nothing, and the build says that it was hipcc."""
    clang = hip_compilers.any_clang(tmp_path / "clang")
    hipcc = hip_compilers.write_hipcc(tmp_path / "bin", clang)
    direct = hip_compilers.write_script(tmp_path / "bin" / "clang++", f'exec {clang} "$@"\n')
    kernels = ["mha_reduce_d_sink", "mha_dq_dk_dv_bf16_hd64"]
    for compiler in (hipcc, direct):
        build(str(compiler), tmp_path / compiler.name, kernels)
    for name in kernels:
        by_hipcc, by_clang = (
            (tmp_path / compiler.name / "kernels" / f"{name}.co").read_bytes()
            for compiler in (hipcc, direct)
        )
        assert by_hipcc == by_clang
    described = (tmp_path / "hipcc" / "build_info.cpp").read_text()
    assert str(hipcc) in described
    assert re.search(r"HIP 7\.0\.51831, clang 2\d", described)
