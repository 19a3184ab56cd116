"""Turns in an event loop: who works when, and that the loop looks at what has come in between."""

import asyncio
import time

from hypothesis import given
from hypothesis import strategies as st

from hubbub.collector.serving import turns as turns_module
from hubbub.collector.serving.turns import SHARE_SECONDS, Turns
from parameters import examples
from unit.collector.event_loop import in_event_loop


def _work_for(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


@in_event_loop
async def test_little_work_is_done_at_once_and_much_waits():
    turns, done = Turns(), list[int]()
    assert turns.may_begin()
    assert turns.may_begin()
    _work_for(SHARE_SECONDS)
    assert not turns.may_begin()
    turns.wait(lambda: done.append(1))
    assert turns.is_long
    await asyncio.sleep(0)
    assert done == [1]
    await asyncio.sleep(0)
    assert turns.may_begin()


@in_event_loop
async def test_loop_looks_at_what_has_come_between_shares_of_work():
    turns = Turns()
    done, looks = list[int](), list[int]()
    for each in range(40):

        def work(number: int = each):
            _work_for(SHARE_SECONDS / 2)
            done.append(number)

        turns.wait(work)
    while turns.is_long:
        looks.append(len(done))
        await asyncio.sleep(0)
    assert done == list(range(40))
    assert max(after - before for before, after in zip(looks, [*looks[1:], 40], strict=True)) <= 2
    assert not turns.is_long


@examples(50)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.sampled_from([0.0, 1e-5, 1.0]))
def test_who_waits_is_served_in_order_and_who_has_more_goes_to_the_end(parts, share):
    served: list[int] = []

    async def run():
        turns = Turns()

        def work(number: int, left: int):
            served.append(number)
            if left > 1:
                turns.wait(lambda: work(number, left - 1))

        for number, left in enumerate(parts):
            turns.wait(lambda number=number, left=left: work(number, left))  # type: ignore[misc]
        while turns.is_long:
            await asyncio.sleep(0)

    before = turns_module.SHARE_SECONDS
    turns_module.SHARE_SECONDS = share
    try:
        asyncio.run(run())
    finally:
        turns_module.SHARE_SECONDS = before
    rounds = [[n for n, left in enumerate(parts) if left > turn] for turn in range(max(parts))]
    assert served == [number for some in rounds for number in some]


@in_event_loop
async def test_work_that_fails_keeps_nobody_waiting():
    loop, turns = asyncio.get_running_loop(), Turns()
    told, done = list[object](), list[int]()
    loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    turns.wait(lambda: 1 // 0)  # type: ignore[arg-type]
    turns.wait(lambda: done.append(1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == [1]
    assert [type(error) for error in told] == [ZeroDivisionError]
