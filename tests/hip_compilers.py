"""The HIP compilers that the tests can have: installed ones, and older ones from PyPI."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import wheels
from wheels import Unavailable

TESTS = Path(__file__).parent
INSTALLED = ("clang++", "clang++-23", "clang++-22", "clang++-21", "clang++-20")
# ziglang wheels by the LLVM that they carry: the oldest supported, which ROCm 7.0 is built on, and
# what is between it and the pinned wheel's 22.
WHEELS = {"LLVM 20": "0.15.2", "LLVM 21": "0.16.0"}


def cmake() -> str:
    beside_python = Path(sys.executable).parent / "cmake"
    found = str(beside_python) if beside_python.exists() else shutil.which("cmake")
    assert found is not None, "these tests need cmake: pip install -r requirements-dev.txt"
    return found


def command_of(compiler: str, folder: Path) -> str:
    """The command line of what MHA_SINK_HIP_COMPILER=compiler stands for, shims in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    script = TESTS / "hip_objects" / "find.cmake"
    definitions = [f"-DMHA_SINK_HIP_COMPILER={compiler}", f"-DMHA_SINK_PYTHON={sys.executable}"]
    done = subprocess.run(
        [cmake(), *definitions, "-P", str(script)],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise Unavailable(" ".join(done.stderr.split()))
    return done.stdout.split("-- command: ")[1].strip()


def any_clang(folder: Path) -> str:
    """The command line of some clang that compiles for gfx950."""
    return command_of("", folder)


def write_hipcc(folder: Path, clang: str, **environment: str) -> Path:
    """An executable `hipcc` that is hip_objects/hipcc.py around the command line `clang`."""
    settings = {"HIPCC_CLANG": clang, **environment}
    exports = "".join(f"export {name}={shlex.quote(text)}\n" for name, text in settings.items())
    script = shlex.quote(str(TESTS / "hip_objects" / "hipcc.py"))
    return write_script(
        folder / "hipcc", f'{exports}exec {shlex.quote(sys.executable)} {script} "$@"\n'
    )


def write_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def zig_of_wheel(version: str) -> Path:
    """The zig of that ziglang wheel, with clang's own headers beside it."""
    folder = wheels.files(f"ziglang=={version}", "ziglang/zig", "ziglang/lib/include/*")
    return folder / "ziglang" / "zig"
