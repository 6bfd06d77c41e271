"""Triton's compile cache goes into a folder of the test session."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def triton_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield
