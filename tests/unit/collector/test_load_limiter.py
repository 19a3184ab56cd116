"""Bounds on what is under way, and nothing forgotten when it is over."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.collector.access.admission import LoadLimiter, Slot
from hubbub.collector.problems import RefusalError
from unit.collector.event_loop import in_event_loop

_steps = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "hold", "release"]), st.integers(0, 9), st.integers(0, 60)
    )
)


@given(_steps)
def test_bounds_are_never_exceeded_and_all_is_given_back(steps):
    asyncio.run(_walk(steps))


async def _walk(steps: list[tuple[str, int, int]]) -> None:
    limiter = LoadLimiter(max_requests=4, max_bytes=100, retry_after=1)
    inside: list[tuple[Slot, int]] = []
    for step, which, size in steps:
        held = [size for _, size in inside]
        if step == "acquire":
            with _refused_if(len(inside) == 4, "shed_requests"):
                inside.append((limiter.acquire(), 0))
        elif inside and step == "hold":
            slot, before = inside[which % len(inside)]
            after = before + size
            with _refused_if(sum(held) + size > 100, "shed_bytes"):
                slot.hold(after)
                inside[which % len(inside)] = (slot, after)
        elif inside:
            inside.pop(which % len(inside))[0].release()
    assert await limiter.wait_until_empty(0) == (not inside)
    for slot, _ in inside:
        slot.release()
    assert await limiter.wait_until_empty(0)
    everything = limiter.acquire()
    everything.hold(100)


@in_event_loop
async def test_waiting_ends_when_the_last_has_left():
    limiter = LoadLimiter(max_requests=4, max_bytes=100, retry_after=1)
    first, second = limiter.acquire(), limiter.acquire()
    waiting = asyncio.create_task(limiter.wait_until_empty(60))
    for slot in (first, second):
        await asyncio.sleep(0)
        assert not waiting.done()
        slot.release()
    assert await waiting


@in_event_loop
async def test_who_is_sent_away_is_told_different_times_to_come_back():
    """P(false alarm) < 1e-50: twenty draws among 1,001 would have to be the same."""
    limiter = LoadLimiter(max_requests=0, max_bytes=100, retry_after=10)
    waits = set()
    for _ in range(20):
        with pytest.raises(RefusalError) as refused:
            limiter.acquire()
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
