"""Who asks what was declared lately gets an answer from after the question, at little cost."""

import asyncio

import pytest

from factories import make_metric
from hubbub.collector.ingest.frontend import Rollout
from hubbub.storage import Declared, MetricVersion, Store, open_store
from hubbub.storage.errors import StoreError
from unit.collector.event_loop import in_event_loop

_NEW = MetricVersion("homepage", 2)


@in_event_loop
async def test_many_who_ask_at_once_share_few_questions_and_no_answer_is_old(any_store_url):
    async with open_store(any_store_url, create=True) as store:
        counting = _CountingStore(store)
        rollout = Rollout(counting)  # type: ignore[arg-type]
        asked = [asyncio.create_task(rollout.has_any([_NEW], ())) for _ in range(50)]
        while not counting.questions:
            await asyncio.sleep(0)
        # The first question is under way: whoever asks from now on must hear of this.
        await store.declare([make_metric(version=2)])
        later = await asyncio.gather(*[rollout.has_any([_NEW], ()) for _ in range(50)])
        assert all(later)
        await asyncio.gather(*asked)
        assert counting.questions <= 4  # two for each fifty
        assert not await rollout.has_any([_NEW], [_NEW])
        assert not await rollout.has_any([MetricVersion("homepage", 3)], ())


@in_event_loop
async def test_question_that_failed_is_asked_again(sqlite_url):
    async with open_store(sqlite_url, create=True) as store:
        await store.declare([make_metric(version=2)])
        failing = _CountingStore(store, failures=1)
        rollout = Rollout(failing)  # type: ignore[arg-type]
        answers = await asyncio.gather(
            *[rollout.has_any([_NEW], ()) for _ in range(5)], return_exceptions=True
        )
        with pytest.raises(StoreError):
            raise next(answer for answer in answers if isinstance(answer, BaseException))
        assert answers.count(True) == 4


class _CountingStore:
    """A store that counts how often it was asked, and fails at first."""

    def __init__(self, store: Store, failures: int = 0) -> None:
        self.questions = 0
        self._store = store
        self._failures = failures

    async def declared(self) -> list[Declared]:
        self.questions += 1
        await asyncio.sleep(0.01)  # so that others ask meanwhile
        if self.questions <= self._failures:
            raise StoreError("not now")
        return await self._store.declared()
