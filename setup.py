"""Builds mha_sink._C with CMake. Everything static about the package is in pyproject.toml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
ZIGLANG = "ziglang==0.17.1"
GIB = 1 << 30


def tool(name: str, folder_attribute: str) -> str:
    """Path of cmake or ninja: the wheel that this Python sees, else the one on PATH."""
    try:
        path = Path(getattr(__import__(name), folder_attribute)) / name
        if path.exists():
            return str(path)
    except (ImportError, AttributeError):
        pass
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"mha_sink: {name} not found. Run: pip install cmake ninja pybind11")
    return found


def hip_compiler_problem() -> str:
    """Empty when cmake/HipCompiler.cmake finds a compiler, else its one-line explanation."""
    with tempfile.TemporaryDirectory() as scratch:
        process = subprocess.run(
            [
                tool("cmake", "CMAKE_BIN_DIR"),
                f"-DMHA_SINK_PYTHON={sys.executable}",
                "-P",
                str(ROOT / "cmake" / "HipCompiler.cmake"),
            ],
            cwd=scratch,
            capture_output=True,
            text=True,
        )
    if process.returncode == 0:
        return ""
    _, _, message = process.stderr.partition("(message):")
    message, _, _ = message.partition("Call Stack")
    return " ".join((message or process.stderr).split())


def parallel_jobs() -> int:
    """One job a processor, two GiB of memory a job; MAX_JOBS caps it."""
    jobs = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    jobs = min(jobs, memory // (2 * GIB))
    if "MAX_JOBS" in os.environ:
        jobs = min(jobs, int(os.environ["MAX_JOBS"]))
    return max(jobs, 1)


class CMakeBuild(build_ext):
    """Configures and builds the tree, then installs the extension beside the Python files.

    MHA_SINK_BUILD_DIR names a build tree to keep; CMAKE_ARGS adds configure arguments.
    """

    def build_extension(self, ext: Extension) -> None:
        problem = hip_compiler_problem()
        if problem:
            raise SystemExit(f"mha_sink: {problem}")
        cmake = tool("cmake", "CMAKE_BIN_DIR")
        build = os.environ.get("MHA_SINK_BUILD_DIR") or str(Path(self.build_temp) / "cmake")
        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        self.run_tool(
            [
                cmake,
                *("-S", str(ROOT), "-B", build, "-G", "Ninja"),
                f"-DCMAKE_MAKE_PROGRAM={tool('ninja', 'BIN_DIR')}",
                f"-DPython_EXECUTABLE={sys.executable}",
                f"-DMHA_SINK_PYTHON={sys.executable}",
                "-DMHA_SINK_BUILD_PYTHON=ON",
                # A warning that only a newer host compiler knows must not stop an installation.
                "-DMHA_SINK_WERROR=OFF",
                *os.environ.get("CMAKE_ARGS", "").split(),
            ]
        )
        self.run_tool(
            [cmake, "--build", build, "--target", "_C", "--parallel", str(parallel_jobs())]
        )
        install = ["--install", build, "--prefix", str(package), "--component", "python"]
        self.run_tool([cmake, *install])

    def run_tool(self, command: list[str]) -> None:
        result = subprocess.run(command)
        if result.returncode != 0:
            raise SystemExit(f"mha_sink: failed (exit {result.returncode}): {' '.join(command)}")


setup(
    ext_modules=[Extension("mha_sink._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    # Only build isolation reads this; 101 MB are fetched only where no other compiler serves.
    setup_requires=[ZIGLANG] if hip_compiler_problem() else [],
)
