"""The gate: bounds on what is under way, and nothing forgotten when it has left."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.collector.access.shedding import Gate, Visit
from hubbub.collector.errors import RefusalError
from unit.collector.event_loop import in_event_loop

_steps = st.lists(
    st.tuples(st.sampled_from(["enter", "hold", "end"]), st.integers(0, 9), st.integers(0, 60))
)


@given(_steps)
def test_bounds_are_never_exceeded_and_all_is_given_back(
    steps: list[tuple[str, int, int]],
) -> None:
    asyncio.run(_walk(steps))


async def _walk(steps: list[tuple[str, int, int]]) -> None:
    gate = Gate(max_requests=4, max_bytes=100, retry_after=1)
    inside: list[tuple[Visit, int]] = []
    for step, which, size in steps:
        held = [size for _, size in inside]
        if step == "enter":
            with _refused_if(len(inside) == 4, "shed_requests"):
                inside.append((gate.enter(), 0))
        elif inside and step == "hold":
            visit, before = inside[which % len(inside)]
            after = before + size
            with _refused_if(sum(held) + size > 100, "shed_bytes"):
                visit.hold(after)
                inside[which % len(inside)] = (visit, after)
        elif inside:
            inside.pop(which % len(inside))[0].end()
    assert await gate.wait_until_empty(0) == (not inside)
    for visit, _ in inside:
        visit.end()
    assert await gate.wait_until_empty(0)
    everything = gate.enter()
    everything.hold(100)


@in_event_loop
async def test_waiting_ends_when_the_last_has_left() -> None:
    gate = Gate(max_requests=4, max_bytes=100, retry_after=1)
    first, second = gate.enter(), gate.enter()
    waiting = asyncio.create_task(gate.wait_until_empty(60))
    for visit in (first, second):
        await asyncio.sleep(0)
        assert not waiting.done()
        visit.end()
    assert await waiting


@in_event_loop
async def test_who_is_sent_away_is_told_different_times_to_come_back() -> None:
    """P(false alarm) < 1e-50: twenty draws among 1,001 would have to be the same."""
    gate = Gate(max_requests=0, max_bytes=100, retry_after=10)
    waits = set()
    for _ in range(20):
        with pytest.raises(RefusalError) as refused:
            gate.enter()
        assert refused.value.status == 429
        waits.add(refused.value.retry_after)
    assert len(waits) > 1
    assert all(wait is not None and 10 <= wait <= 20 for wait in waits)


class _refused_if:  # noqa: N801 - read as a statement
    """Expect a refusal exactly if a condition holds."""

    def __init__(self, condition: bool, reason: str) -> None:
        self._condition = condition
        self._reason = reason

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if self._condition:
            assert isinstance(error, RefusalError)
            assert error.reason == self._reason
        else:
            assert error is None
        return True
