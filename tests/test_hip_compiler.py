"""Which HIP compiler cmake/HipCompiler.cmake takes, with stand-ins for those not installed here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hip_compilers
from wheels import Unavailable

SCRIPT = Path(__file__).parent.parent / "cmake" / "HipCompiler.cmake"

# Answers --version, then "compiles" by creating the file after -o, or refuses to.
STAND_IN = """
if [ "$1" = --version ]; then echo "{version}"; exit 0; fi
if [ -n "{refusal}" ]; then echo "error: {refusal}"; exit 1; fi
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then : > "$2"; fi
  shift
done
"""


class Machine:
    """A folder that is all of PATH. cmake itself is called by its own path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        sh = shutil.which("sh")
        assert sh is not None
        (self.bin / "sh").symlink_to(sh)

    def add(self, name: str, version: str, refusal: str = "", folder: str = "bin") -> Path:
        return self.add_script(name, STAND_IN.format(version=version, refusal=refusal), folder)

    def add_script(self, name: str, text: str, folder: str = "bin") -> Path:
        return hip_compilers.write_script(self.folder / folder / name, text)

    def find(self, *arguments: str, **environment: str) -> tuple[bool, str]:
        """(found, everything that CMake printed, on one line)."""
        done = subprocess.run(
            [hip_compilers.cmake(), *arguments, "-P", str(SCRIPT)],
            cwd=self.folder,
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode == 0, " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if os.path.exists("/opt/rocm/bin/hipcc") or os.path.exists("/opt/rocm/llvm/bin/clang++"):
        pytest.skip("ROCm in /opt/rocm is found whatever PATH says")
    return Machine(tmp_path)


@pytest.fixture
def clang(machine: Machine) -> str:
    """The command line of a clang that compiles for gfx950."""
    try:
        return hip_compilers.any_clang(machine.folder / "clang")
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_hipcc_comes_first(machine: Machine) -> None:
    hipcc = machine.add("hipcc", "HIP version: 7.0.51831-7c9236b16")
    machine.add("clang++", "clang version 22.1.8")
    found, text = machine.find()
    assert found
    assert f"HIP compiler: {hipcc} (HIP 7.0.51831): hipcc is preferred" in text


# What hipcc --version prints after its first line is its clang's.
HIPCC_VERSION = """HIP version: {hip}
AMD clang version {clang} (https://github.com/RadeonOpenCompute/llvm-project roc-{release} 25314)
Target: x86_64-unknown-linux-gnu
Thread model: posix
InstalledDir: /opt/rocm-{release}/lib/llvm/bin
Configuration file: /opt/rocm-{release}/lib/llvm/bin/clang++.cfg"""


@pytest.mark.parametrize(
    ("release", "hip", "clang", "described"),
    [
        ("7.0.0", "7.0.51831-a3e329ad8", "20.0.0git", "HIP 7.0.51831, clang 20.0.0"),
        ("10.0.0", "10.0.60123-0", "23.0.0git", "HIP 10.0.60123, clang 23.0.0"),
    ],
)
def test_both_versions_of_hipcc_are_told(
    machine: Machine, release: str, hip: str, clang: str, described: str
) -> None:
    machine.add("hipcc", HIPCC_VERSION.format(release=release, hip=hip, clang=clang))
    found, text = machine.find()
    assert found
    assert f"hipcc ({described}): hipcc is preferred" in text


def test_old_hipcc_gives_way_to_clang(machine: Machine) -> None:
    version = HIPCC_VERSION.format(release="6.4.1", hip="6.4.43483-a187df25c", clang="19.0.0git")
    hipcc = machine.add("hipcc", version)
    clang = machine.add("clang++-20", "Debian clang version 20.1.0")
    found, text = machine.find()
    assert found
    assert f"HIP compiler: {clang} (clang 20.1.0): {hipcc} is ROCm 6, needs >= 7" in text


def test_hipcc_takes_the_exact_command(machine: Machine, clang: str) -> None:
    hipcc = hip_compilers.write_hipcc(machine.bin, clang)
    found, text = machine.find()
    assert found
    assert f"HIP compiler: {hipcc} (HIP 7.0.51831, clang 2" in text
    assert "hipcc is preferred" in text
    assert (machine.folder / "hip_compiler" / "probe.co").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("option", ["-target", "-femit-bin=x", "-B/folder", "--zig-lib-dir"])
def test_the_hipcc_of_these_tests_refuses_what_is_not_documented(
    machine: Machine, clang: str, option: str
) -> None:
    hipcc = hip_compilers.write_hipcc(machine.bin, clang)
    done = subprocess.run(
        [hipcc, "-x", "hip", option, "-o", "out.co", "in.hip"],
        cwd=machine.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"unknown argument: '{option}'" in done.stderr


@pytest.mark.parametrize("option", ["-fuse-cuid", "-ffile-prefix-map", "-nogpuinc"])
def test_the_clang_of_a_hipcc_that_refuses_an_option_compiles(
    machine: Machine, clang: str, option: str
) -> None:
    hip_compilers.write_hipcc(machine.bin, clang, HIPCC_REFUSES=option)
    inner = machine.add_script("clang++", f'exec {clang} "$@"\n', folder="llvm")
    machine.add_script("hipconfig", f'[ "$1" = --hipclangpath ] && printf %s {inner.parent}\n')
    found, text = machine.find()
    assert found
    assert f"HIP compiler: {inner} (HIP 7.0.51831, clang 2" in text
    assert "its clang++ is called directly, because hipcc cannot compile" in text
    assert f"unknown argument: '{option}" in text
    assert (machine.folder / "hip_compiler" / "probe.co").exists()


def test_a_hipcc_without_a_usable_clang_gives_way(machine: Machine) -> None:
    hipcc = machine.add("hipcc", "HIP version: 7.1.0", refusal="unknown argument -fuse-cuid")
    inner = machine.add("clang++", "clang version 20.0.0", refusal="no lld", folder="llvm")
    machine.add_script("hipconfig", f"echo {inner.parent}\n")
    other = machine.add("clang++-21", "clang version 21.1.0")
    found, text = machine.find()
    assert found
    assert f"HIP compiler: {other} (clang 21.1.0): {hipcc} cannot compile for gfx950" in text


def test_old_clang_gives_way_to_a_newer_one(machine: Machine) -> None:
    old = machine.add("clang++", "clang version 14.0.6")
    new = machine.add("clang++-22", "clang version 22.1.8")
    found, text = machine.find()
    assert found
    assert f"HIP compiler: {new}" in text
    assert f"{old} is clang 14, needs >= 20" in text


def test_a_hipcc_that_refuses_the_flags_is_bypassed(machine: Machine) -> None:
    machine.add("hipcc", "HIP version: 7.1.0", refusal="unknown argument -fuse-cuid")
    inner = machine.add("clang++", "clang version 20.0.0", folder="llvm")
    machine.add_script("hipconfig", f"echo {inner.parent}\n")
    found, text = machine.find()
    assert found
    assert f"HIP compiler: {inner} (HIP 7.1.0)" in text
    assert "its clang++ is called directly" in text
    assert "unknown argument -fuse-cuid" in text


@pytest.mark.parametrize("how", ["cache", "environment"])
def test_an_override_wins(machine: Machine, how: str) -> None:
    machine.add("hipcc", "HIP version: 7.0.0")
    mine = machine.add("my-clang", "clang version 23.0.0")
    if how == "cache":
        found, text = machine.find(f"-DMHA_SINK_HIP_COMPILER={mine}")
    else:
        found, text = machine.find(MHA_SINK_HIP_COMPILER="my-clang")
    assert found
    assert f"HIP compiler: {mine} (clang 23.0.0): MHA_SINK_HIP_COMPILER names it" in text


def test_an_override_that_fails_is_an_error(machine: Machine) -> None:
    machine.add("hipcc", "HIP version: 7.0.0")
    machine.add("old-clang", "clang version 14.0.6")
    machine.add("broken-clang", "clang version 22.1.8", refusal="unable to execute lld")
    for name, reason in {
        "old-clang": "is clang 14, needs >= 20",
        "broken-clang": "cannot compile for gfx950: error: unable to execute lld",
        "absent": "is not a program",
    }.items():
        found, text = machine.find(MHA_SINK_HIP_COMPILER=name)
        assert not found
        assert f"MHA_SINK_HIP_COMPILER is '{name}'" in text
        assert reason in text


def test_without_a_compiler_three_remedies_are_named(machine: Machine) -> None:
    machine.add("clang++", "clang version 14.0.6")
    found, text = machine.find()
    assert not found
    assert "No HIP compiler for gfx950" in text
    assert "is clang 14, needs >= 20" in text
    for remedy in ("ROCm >= 7", "clang++ >= 20", "pip install ziglang==0.17.1"):
        assert remedy in text
    assert text.count("CMake Error") == 1


def test_the_ziglang_wheel_compiles(machine: Machine) -> None:
    pytest.importorskip("ziglang", reason="the ziglang wheel is not installed")
    found, text = machine.find(f"-DMHA_SINK_PYTHON={sys.executable}")
    assert found
    assert "HIP compiler: zig clang (zig 0.17.1, clang 22" in text
    assert "no hipcc found; no clang++ found" in text
    assert (machine.folder / "hip_compiler" / "probe.co").read_bytes()[:4] == b"\x7fELF"
