"""An engine maps a pure function over tasks; where the function runs is all that engines differ in.

    with open_engine("spark", "spark://host:7077") as engine:
        for counts in engine.map(count_task, params, tasks):
            total += counts

`work(shared, task)` is a function of a module (or a partial of one), because engines send it by
name; `shared` is one read-only value, which is sent to each worker once, however many tasks there
are: None if there is nothing to share. All of it, and what `work` returns, must be picklable. Work
writes to nothing that it was given.

Where the same values are needed again and again, a `Keeper` leaves them where they were made:

    kept = engine.keep(pack_cohorts, settings, cohorts)
    for found in kept.map(evaluate, shares): ...

Invariants: results come in the order of their tasks, so that sums of floats don't depend on the
engine or the number of cores; at most a few tasks a worker are ahead of the one that is waited for,
so that memory doesn't grow with the number of tasks; the first exception of `work`, in the order of
tasks, is raised as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

_Shared = TypeVar("_Shared")
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_Value_co = TypeVar("_Value_co", covariant=True)


class Engine(Protocol):
    """Anything that maps pure tasks.

    Attributes
    ----------
    name : str
        What options call it.
    """

    @property
    def name(self) -> str:
        """Return which engine it is."""
        ...

    def map(
        self,
        work: Callable[[_Shared, _Task], _Result],
        shared: _Shared,
        tasks: Sequence[_Task],
    ) -> Iterator[_Result]:
        """Yield `work(shared, task)` of each task, in the order of tasks.

        Raises
        ------
        EngineError
            If the engine fails where it doesn't help to do a task again.
        """
        ...


class Kept(Protocol[_Value_co]):
    """Values that an engine keeps where it made them."""

    def map(
        self, work: Callable[[_Shared, _Value_co], _Result], shared: _Shared
    ) -> Iterator[_Result]:
        """Yield `work(shared, value)` of each value, in the order of the tasks that made them.

        Raises what making a value raised, in that order, too; otherwise as `Engine.map`. All
        results may come at once.
        """
        ...


@runtime_checkable
class Keeper(Engine, Protocol):
    """An engine whose workers have memory of their own, in which results may stay."""

    def keep(
        self,
        make: Callable[[_Shared, _Task], _Result],
        shared: _Shared,
        tasks: Sequence[_Task],
    ) -> Kept[_Result]:
        """Make `make(shared, task)` of each task, and keep it until the engine is closed.

        What is lost with a worker is made again.
        """
        ...
