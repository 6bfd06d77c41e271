"""Sparse MLA on a HIP runtime whose GPUs are emulated; see tests/fake_hip."""

import subprocess
import sys

import pytest
import torch

import fake_rocm
import mha_sink
from mha_sink import _C


@pytest.mark.skipif(fake_rocm.library() is None, reason="needs the fake HIP runtime")
def test_a_stream_and_a_graph_capture() -> None:
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def call() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, do = (torch.randn(3, 16, 512, generator=generator).bfloat16() for _ in range(2))
    kv = torch.randn(9, 512, generator=generator).bfloat16()
    indices = torch.randint(-1, 9, (3, 64), generator=generator, dtype=torch.int32)
    sink = torch.randn(16, generator=generator)
    plan = mha_sink.sparse_mla_plan(indices, 9)
    o, lse = mha_sink.sparse_mla_fwd_dsv4(q, kv, indices, sink)
    inputs = (q, kv, do, o, lse, indices, sink)
    kept = [q, kv, do, indices, sink, plan, o, lse]
    return [o, lse, *mha_sink.sparse_mla_bwd_dsv4(*inputs, None, 32), *kept]


def main() -> None:
    emulated = call()[:5]
    fake = fake_rocm.FakeHip()
    stream = fake.stream(0)
    fake.use_for_torch(0, stream)
    mha_sink.warmup("cuda:0")
    assert fake.calls("hipModuleLoadData") == len(_C.kernels())

    on_stream = call()
    assert fake.pending(stream) > 0, "the call does not wait"
    fake.synchronize(0, stream)
    for here, there in zip(emulated, on_stream, strict=False):
        assert torch.equal(here, there)

    fake.begin_capture(0, stream)
    call()
    assert fake.end_capture(0, stream) == 0, "nothing illegal in the capture"


if __name__ == "__main__":
    main()
