"""Threads, fork, the GIL, and what happens when the workspace callback fails."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import pytest
import torch

import mha_sink
from mha_sink import _C, _tensors
from mha_sink.testing import Inputs, case, check, expected, make_inputs, run_guarded

NAME = "gqa/h6-k2"
fixed_by_environment = pytest.mark.skipif(
    "MHA_SINK_THREADS" in os.environ, reason="MHA_SINK_THREADS fixes the thread count"
)


def call(inputs: Inputs):
    return mha_sink.mha_bwd(
        inputs.dout, inputs.q, inputs.k, inputs.v, inputs.out, inputs.lse, 0.0, inputs.case.scale,
        inputs.case.causal, *inputs.case.window, False, sink=inputs.sink,
    )  # fmt: skip


@fixed_by_environment
@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_threads(count, threads):
    inputs = make_inputs(case(NAME))
    threads(count)
    written = run_guarded(inputs)
    assert _C.thread_count() == count
    against = expected(inputs)
    result = check(written, against.x64, against.xr)
    assert result.passed, str(result)


def test_the_environment_wins():
    script = (
        "import torch; from mha_sink import _C; from mha_sink.testing import *\n"
        "torch.set_num_threads(1); run_guarded(make_inputs(case('corner/q1-k1')))\n"
        "print(_C.thread_count())"
    )
    environment = {**os.environ, "MHA_SINK_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "3"


@pytest.mark.parametrize("value", ["0", "-1", "many", "2 4"])
def test_a_bad_environment_is_named(value):
    script = (
        "from mha_sink.testing import *\nimport mha_sink\n"
        "try: run_guarded(make_inputs(case('corner/q1-k1')))\n"
        "except mha_sink.Error as error: print(error)"
    )
    environment = {**os.environ, "MHA_SINK_THREADS": value}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert "MHA_SINK_THREADS" in done.stdout
    assert value in done.stdout


def _in_child(inputs: Inputs, connection) -> None:
    _, dk, dv, _ = call(inputs)
    connection.send([x.view(torch.int16).numpy().tobytes() for x in (dk, dv)])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_after_use(threads):
    threads(2)
    inputs = make_inputs(case(NAME))
    _, dk, dv, _ = call(inputs)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(inputs, sender))
    child.start()
    try:
        assert receiver.poll(60), "the child hangs"
        # Only dq is summed by atomics.
        assert receiver.recv() == [x.view(torch.int16).numpy().tobytes() for x in (dk, dv)]
        child.join(10)
        assert child.exitcode == 0
    finally:
        child.kill()
    assert torch.equal(call(inputs)[1], dk)


def test_the_gil_is_released():
    inputs = make_inputs(case("gqa/h28-k4"))
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.002):
            ticks.append(time.perf_counter())

    ticker = threading.Thread(target=tick)
    ticker.start()
    started = time.perf_counter()
    call(inputs)
    ended = time.perf_counter()
    done.set()
    ticker.join()
    during = [t for t in ticks if started < t < ended]
    # Were the GIL held, nothing would tick between the checks and the end of the last kernel.
    gaps = [b - a for a, b in zip([started, *during], [*during, ended], strict=True)]
    assert max(gaps) < 0.5 * (ended - started), f"{len(during)} ticks in {ended - started:.3f} s"


def test_calls_from_several_python_threads():
    inputs = [make_inputs(case(NAME), seed) for seed in range(3)]
    alone = [call(x) for x in inputs]
    together: list = [None] * 3

    def work(i: int) -> None:
        together[i] = call(inputs[i])

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for a, b in zip(alone, together, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a[1:], b[1:], strict=True))


def prepared(inputs: Inputs):
    """A call object and its output tensors, filled with 7."""
    outputs = {"dq": inputs.q, "dk": inputs.k, "dv": inputs.v, "softmax_d": inputs.lse}
    outputs = {name: torch.full_like(x, 7.0) for name, x in outputs.items()}
    outputs["d_sink"] = torch.full((inputs.q.shape[2],), 7.0)
    given = {
        "dout": inputs.dout, "q": inputs.q, "k": inputs.k, "v": inputs.v, "out": inputs.out,
        "softmax_lse": inputs.lse, "sink": inputs.sink, **outputs,
    }  # fmt: skip
    request = _C.MhaBwdCall()
    for name, tensor in given.items():
        setattr(request, name, _tensors.describe("test", name, tensor))
    request.softmax_scale = inputs.case.scale
    request.is_causal = inputs.case.causal
    return request, outputs


class NoMemory(Exception):
    pass


def test_an_exception_in_the_workspace_callback_comes_through():
    request, outputs = prepared(make_inputs(case(NAME)))
    raised = NoMemory("none left")

    def alloc(size: int, zero_init: bool) -> int:
        raise raised

    _C.profile_start()
    with pytest.raises(NoMemory) as caught:
        _C.mha_bwd(request, alloc)
    assert _C.profile_stop() == {}
    assert caught.value is raised
    assert all((x == 7).all() for x in outputs.values())


def test_a_null_workspace_is_an_error():
    request, outputs = prepared(make_inputs(case(NAME)))
    with pytest.raises(mha_sink.Error, match=r"workspace.*null"):
        _C.mha_bwd(request, lambda size, zero_init: 0)
    assert all((x == 7).all() for x in outputs.values())


def test_the_workspace_callback_is_called_once_with_the_exact_size():
    inputs = make_inputs(case(NAME))
    request, _ = prepared(inputs)
    shape = inputs.case
    size = _C.mha_bwd_workspace_bytes(
        shape.batch, shape.seqlen_q, shape.seqlen_k, shape.nhead_q, shape.nhead_k, shape.hdim
    )
    calls = []
    guard = 4096
    block = torch.full((size + 2 * guard,), 0xFF, dtype=torch.uint8)

    def alloc(bytes_: int, zero_init: bool) -> int:
        calls.append((bytes_, zero_init))
        return block.data_ptr() + guard

    _C.mha_bwd(request, alloc)
    assert calls == [(size, False)]
    assert (block[:guard] == 0xFF).all()
    assert (block[size + guard :] == 0xFF).all()


@pytest.mark.parametrize("seqlen", [2048, 8192, 65536, 2**20])
@pytest.mark.parametrize(("nhead_q", "nhead_k"), [(64, 64), (64, 8), (28, 4), (8, 1)])
@pytest.mark.parametrize("hdim", [64, 128])
def test_the_workspace_is_at_most_four_times_dq(seqlen, nhead_q, nhead_k, hdim):
    size = _C.mha_bwd_workspace_bytes(1, seqlen, seqlen, nhead_q, nhead_k, hdim)
    assert 0 < size <= 4 * seqlen * nhead_q * hdim * 4
