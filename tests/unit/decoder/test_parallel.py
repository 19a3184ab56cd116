"""How linear algebra is kept to one thread, whoever asks for it, and in whatever order they end."""

import sys
import types

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

from hubbub.inference import one_thread


def threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    assert np.linalg.inv(np.eye(2)).shape == (2, 2)  # so that there is a library
    with threadpool_limits(2):
        yield


def test_the_last_to_leave_restores_what_was():
    first, second = one_thread(), one_thread()
    first.__enter__()
    assert threads() == {1}
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads() == {1}
    second.__exit__(None, None, None)
    assert threads() == {2}


def test_an_error_restores_what_was():
    with pytest.raises(ValueError, match="made up"), one_thread():
        raise ValueError("made up")
    assert threads() == {2}


def test_a_library_that_an_import_brings_is_kept_to_one_thread_from_then_on(monkeypatch):
    """What is loaded later has as many threads as it likes, as if something had set them."""
    with one_thread(), threadpool_limits(2):
        with one_thread():
            assert threads() == {2}  # nothing was imported: nobody looks again
        monkeypatch.setitem(sys.modules, "made_up_module", types.ModuleType("made_up_module"))
        with one_thread():
            assert threads() == {1}
    assert threads() == {2}
