"""Fixtures of the decoder's tests."""

from collections.abc import Iterator

import pytest

from hubbub.decoder.engines import DaskEngine, open_engine
from hubbub.inference.parallel import cores


@pytest.fixture(scope="session")
def dask_of_session() -> Iterator[DaskEngine]:
    """Start workers once for all tests of this process."""
    with open_engine("dask") as engine:
        assert isinstance(engine, DaskEngine)
        yield engine


@pytest.fixture
def dask(dask_of_session) -> Iterator[DaskEngine]:
    """Leave all workers running to whoever comes next.

    One that was killed starts with this process's environment and folder of then: those of another
    test that changes them would end it for good.
    """
    yield dask_of_session
    dask_of_session._client.wait_for_workers(cores(), timeout=60)
