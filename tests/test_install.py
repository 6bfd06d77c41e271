"""`cmake --install`, and a project outside the tree that finds, links and runs the library."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.timeout(1200)  # without MHA_SINK_BUILD_DIR the library is built here


def cmake(*arguments: object) -> str:
    beside_python = Path(sys.executable).parent / "cmake"
    program = str(beside_python) if beside_python.exists() else shutil.which("cmake")
    if program is None:
        pytest.skip("needs cmake")
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "MHA_SINK_BUILD_DIR" in os.environ:
        return Path(os.environ["MHA_SINK_BUILD_DIR"])
    build = tmp_path_factory.mktemp("build")
    cmake("-S", ROOT, "-B", build, f"-DMHA_SINK_PYTHON={sys.executable}")
    cmake("--build", build, "--parallel", 2)
    return build


@pytest.fixture(scope="module")
def prefix(build_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation that was moved since, as packages are."""
    folder = tmp_path_factory.mktemp("install")
    cmake("--install", build_tree, "--prefix", folder / "first", "--component", "library")
    return (folder / "first").rename(folder / "moved")


def test_headers_and_package_are_installed(prefix: Path) -> None:
    headers = {path.name for path in (ROOT / "csrc" / "include" / "mha_sink").iterdir()}
    assert {path.name for path in (prefix / "include" / "mha_sink").iterdir()} == headers
    assert list(prefix.glob("lib*/libmha_sink.*"))
    assert list(prefix.glob("lib*/cmake/mha_sink/mha_sinkConfig.cmake"))


def test_the_package_names_no_path_of_this_machine(build_tree: Path, prefix: Path) -> None:
    files = list(prefix.glob("lib*/cmake/mha_sink/*.cmake"))
    assert files
    for file in files:
        text = file.read_text()
        for path in (ROOT, build_tree.resolve(), prefix.parent):
            assert str(path) not in text, file.name


def test_an_outside_project_gets_the_right_numbers(prefix: Path, tmp_path: Path) -> None:
    source, build = tmp_path / "source", tmp_path / "build"
    shutil.copytree(ROOT / "tests" / "install", source)
    cmake("-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    cmake("--build", build)
    done = subprocess.run([build / "backward"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == ["dq", "dk", "dv", "d_sink"]


def test_another_minor_version_is_refused(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(user LANGUAGES CXX)\n"
        "find_package(mha_sink 0.99 QUIET)\n"
        'message(STATUS "found: ${mha_sink_FOUND}, seen: ${mha_sink_CONSIDERED_VERSIONS}")\n'
    )
    text = cmake("-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert "found: 0, seen: 0.1." in text


def test_the_benchmark_is_installed(build_tree: Path, tmp_path: Path) -> None:
    if not (build_tree / "benchmark_mha_bwd").exists():
        pytest.skip("the build tree holds no benchmark_mha_bwd")
    cmake("--install", build_tree, "--prefix", tmp_path, "--component", "benchmark")
    program = tmp_path / "bin" / "benchmark_mha_bwd"
    done = subprocess.run([program, "-help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("benchmark_mha_bwd: ")
