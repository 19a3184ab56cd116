"""Engines: results in the order of tasks, few tasks ahead, the first exception as it was."""

import threading
from functools import partial

import pytest

from hubbub.decoder import decode_metric
from hubbub.decoder.engines import LocalEngine
from hubbub.inference import UndecodableError
from hubbub.protocol import OptionError


def _scaled(factor: int, task: int) -> int:
    return factor * task


def test_results_come_in_the_order_of_tasks():
    first_may_end = threading.Event()

    def work(_shared: None, task: int) -> int:
        if task == 0:
            assert first_may_end.wait(30)
        else:
            first_may_end.set()
        return task

    assert list(LocalEngine(2).map(work, None, range(50))) == list(range(50))


def test_work_gets_the_shared_value():
    engine = LocalEngine()
    assert list(engine.map(_scaled, 3, [1, 2, 5])) == [3, 6, 15]
    assert list(engine.map(partial(_scaled), 3, [])) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_few_tasks_are_ahead_of_the_one_that_is_taken(threads):
    begun: list[int] = []

    def work(_shared: None, task: int) -> int:
        begun.append(task)
        return task

    results = LocalEngine(threads).map(work, None, range(1000))
    for _ in range(10):
        next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(begun) < 100


def test_the_first_exception_in_the_order_of_tasks_is_raised():
    def work(_shared: None, task: int) -> int:
        if task >= 5:
            raise UndecodableError(f"task {task}")
        return task

    results = LocalEngine(2).map(work, None, range(100))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(UndecodableError, match="task 5"):
        next(results)


@pytest.mark.parametrize(("name", "master"), [("ray", None), ("local", "tcp://host:8786")])
def test_unknown_engines_are_refused(name, master):
    with pytest.raises(OptionError, match=r"^(engine|master)="):
        decode_metric("homepage", metrics="metrics.toml", engine=name, master=master)


def test_inputs_that_an_engine_cannot_read_are_refused():
    with pytest.raises(OptionError, match="export it first"):
        decode_metric("homepage", metrics="metrics.toml", store="sqlite:///a.db", engine="dask")
