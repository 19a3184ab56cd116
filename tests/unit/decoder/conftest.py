"""Fixtures of the decoder's tests."""

from collections.abc import Iterator

import pytest

from hubbub.decoder.engines import Keeper, open_engine


@pytest.fixture(scope="session")
def dask() -> Iterator[Keeper]:
    """Start workers once for all tests of this process."""
    with open_engine("dask") as engine:
        assert isinstance(engine, Keeper)
        yield engine
