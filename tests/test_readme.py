"""The code blocks of README.md do what they say."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import mha_sink

ROOT = Path(__file__).parent.parent


def code_blocks(language: str, count: int) -> list[str]:
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == count
    return blocks


def executed(code: str) -> dict[str, Any]:
    torch.manual_seed(0)
    names: dict[str, Any] = {"torch": torch, "mha_sink": mha_sink}
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_python() -> None:
    names = executed(code_blocks("python", 2)[0])
    for result, like in {"dq": "q", "dk": "k", "dv": "v", "d_sink": "d_sink"}.items():
        assert names[result].shape == names[like].shape
        assert names[result].isfinite().all()
        assert names[result].abs().max() > 0


def test_python_sparse_mla() -> None:
    names = executed(code_blocks("python", 2)[1])
    for name in ("q", "kv", "sink"):
        assert names[name].grad.isfinite().all()
        assert names[name].grad.abs().max() > 0


# With q = 0 and lse = 0 every visible P is 1, so that dv[j] counts the queries that see key j.
MAIN = """
#include <cstdio>
#include <cstdint>
int main() {
  const int s = 70, h = 2, d = 64, n = s * h * d;
  std::vector<uint16_t> zero(n), one(n, 0x3f80), dq(n, 0xffff), dk(n, 0xffff), dv(n, 0xffff);
  std::vector<float> lse(h * s), sink(h), d_sink(h, 3.0f);
  const float ms = backward(zero.data(), zero.data(), zero.data(), one.data(), lse.data(),
                            one.data(), dq.data(), dk.data(), dv.data(), sink.data(),
                            d_sink.data(), s, h, d, 0.125f);
  const auto value = [&](int key) {
    const uint32_t bits = uint32_t{dv[key * h * d]} << 16;
    return *reinterpret_cast<const float*>(&bits);
  };
  std::printf("%g %g %g %g", ms, value(0), value(s - 1), d_sink[1]);
}
"""


def test_cpp(tmp_path: Path) -> None:
    build = os.environ.get("MHA_SINK_BUILD_DIR")
    compiler = shutil.which("g++")
    if build is None or compiler is None:
        pytest.skip("needs g++ and MHA_SINK_BUILD_DIR, a build tree with libmha_sink.a")
    source, program = tmp_path / "readme.cpp", tmp_path / "readme"
    source.write_text(code_blocks("cpp", 1)[0] + MAIN)
    include, library = ROOT / "csrc" / "include", Path(build) / "libmha_sink.a"
    command = [compiler, "-std=c++20", f"-I{include}", source, library, "-pthread", "-o", program]
    subprocess.run(command, check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    # d_sink: 3 - 70 rows * exp(0 - 0) * delta, delta = 64 * 1 * 1.
    assert output.split() == ["0", "70", "1", f"{3 - 70 * 64}"]
