"""Options, markers and fixtures of the Python tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch

from mha_sink import _C


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the tests marked full")
    parser.addoption(
        "--sanitize",
        action="store_true",
        help="emulated launches check races, waits, hazards and uninitialised reads",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: every combination of a grid; minutes to an hour")
    config.addinivalue_line("markers", "faulty: runs faulty code on purpose; --sanitize is off")
    if config.getoption("--sanitize"):
        _C.set_sanitizer("races,waits,hazards,uninit")
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)  # the workers share the processors


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full") or "full" in config.getoption("-m"):
        return
    full = [item for item in items if item.get_closest_marker("full")]
    if full:
        config.hook.pytest_deselected(items=full)
        items[:] = [item for item in items if item not in full]


@pytest.fixture(autouse=True)
def not_sanitized(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests marked faulty show what the fault does to results."""
    if request.node.get_closest_marker("faulty") is None:
        yield
        return
    before = _C.sanitizer()
    _C.set_sanitizer("")
    yield
    _C.set_sanitizer(before)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Workgroups run one after another, so that sums by atomics have one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets torch's, and with it the emulator's, thread count for the rest of the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def schedule() -> Callable[[int, bool], AbstractContextManager[None]]:
    """Interleaves the waves of a workgroup differently within a `with` block."""

    @contextmanager
    def scheduled(quantum: int, reverse: bool) -> Iterator[None]:
        before = _C.schedule()
        _C.set_schedule(quantum, reverse)
        try:
            yield
        finally:
            _C.set_schedule(*before)

    return scheduled
