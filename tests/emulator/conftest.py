"""The test kernels, compiled once a session and loaded once a process."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from emulated import build_test_kernels
from mha_sink import _C


@pytest.fixture(scope="session")
def kernel_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the compiled tests/kernels: <stem>.co."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    return build_test_kernels(root / "kernels")


@pytest.fixture(scope="session")
def code(kernel_folder: Path) -> Callable[[str], _C.EmulatedObject]:
    """code("mfma") is tests/kernels/mfma.hip, loaded."""

    @cache
    def load(stem: str) -> _C.EmulatedObject:
        return _C.EmulatedObject((kernel_folder / f"{stem}.co").read_bytes(), stem)

    return load
