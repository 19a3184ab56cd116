"""Random histories of a real collector, beside a model that is a dictionary and a multiset.

What the model knows: the batches that were taken (by id), the records that must be stored, the ids
that the store has forgotten, and the counts of reports that were counted. After each step both must
agree. HUBBUB_MODEL_EXAMPLES says how many histories are played.
"""

import asyncio
import datetime as dt
import os
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from factories import make_metric, make_params, registry_toml
from hubbub.client import Batch, batch_to_json
from hubbub.protocol import KeptCounts, Records, keep_counts, keep_none, pack_counts, record_width
from hubbub.simulations import Collector
from hubbub.storage import MetricVersion, NewBatch, Store, StoredCounts, open_store
from programs import forked_collector
from service.commands import collector_output
from service.faults import is_alive, kill, processes_of, status_of
from service.loads import stored_in
from service.posting import make_batch, post, wait_until

EXAMPLES = int(os.environ.get("HUBBUB_MODEL_EXAMPLES", "2"))
pytestmark = pytest.mark.timeout(300 + 30 * EXAMPLES)

_STEPS = 20 if EXAMPLES > 10 else 8
_HOMEPAGE = make_metric()
_SEARCH = make_metric("search", params=make_params(k=8, m=4))
_STRANGER = make_metric("stranger", params=make_params(k=16, m=8))
_METRICS = {metric.name: metric for metric in (_HOMEPAGE, _SEARCH)}
_OLD = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=40)
_OPTIONS = ["--upkeep-seconds", "0.3", "--log-level", "error"]
_WRONG: list[Callable[[Batch], bytes]] = [
    lambda batch: batch_to_json(batch)[:-1],
    lambda batch: batch_to_json(batch).replace(b'"version":1', b'"version":0', 1),
    lambda batch: batch_to_json(batch).replace(b'"cohort":', b'"cohort":9', 1),
    lambda batch: batch_to_json(batch).replace(b'"metric"', b'"who"', 1),
    lambda batch: batch_to_json(batch._replace(batch_id=batch.batch_id.upper() + "A")),
]
_Found = TypeVar("_Found")


class CollectorModel(RuleBasedStateMachine):
    """A collector's life; subclasses say on which store, and with how many workers."""

    workers = 1

    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._running: ExitStack | None = None
        self._taken: dict[str, Batch] = {}
        self._records: Counter[tuple[str, bytes]] = Counter()
        self._counted: dict[str, KeptCounts] = {}
        self._registry = dict(_METRICS)
        self._numbers = iter(range(10**9))

    def new_store(self) -> str:
        """Return the address of a store that doesn't exist yet."""
        return f"sqlite:///{self._folder / f'{next(self._numbers)}.db'}"

    @initialize()
    def begin(self):
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._metrics = self._folder / "metrics.toml"
        self._write_registry()
        self._store = self.new_store()
        self._start()

    def teardown(self) -> None:
        self._stop()
        self._stack.close()

    @rule(target=known, homepage=st.integers(1, 20), search=st.integers(0, 5))
    def upload(self, homepage, search) -> Batch:
        batch = _mixed_batch(homepage, search)
        assert post(self._collector.url, batch).status == 201
        self._book(batch)
        return batch

    @rule(target=known, homepage=st.integers(0, 5), stranger=st.integers(1, 5))
    def upload_from_a_stranger(self, homepage, stranger):
        batch = _mixed_batch(homepage, 0, stranger)
        if _STRANGER.name not in self._registry:
            refused = post(self._collector.url, batch)
            assert (refused.status, refused.json["retry"]) == (422, True)
            return multiple()
        assert post(self._collector.url, batch).status == 201
        self._book(batch)
        return batch

    @rule()
    def mend_the_registry(self):
        """Let it know the stranger, or begin anew without it."""
        self._stop()
        if _STRANGER.name in self._registry:
            self._store, self._registry = self.new_store(), dict(_METRICS)
            self._taken.clear()
            self._records.clear()
        else:
            self._registry[_STRANGER.name] = _STRANGER
        self._write_registry()
        self._start()

    @rule(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=8), copies=st.integers(1, 3))
    def upload_several_at_once(self, sizes, copies):
        batches = [make_batch(size) for size in sizes]
        with ThreadPoolExecutor(len(sizes) * copies) as pool:
            answers = list(pool.map(self._post, batches * copies))
        statuses = Counter(answers)
        assert statuses == Counter({201: len(sizes), 200: len(sizes) * (copies - 1)})
        for batch in batches:
            self._book(batch)

    @rule(batch=known)
    def upload_again(self, batch):
        expected = 200 if batch.batch_id in self._taken else 201
        assert post(self._collector.url, batch).status == expected
        if expected == 201:
            self._book(batch)

    @rule(spoil=st.sampled_from(_WRONG), size=st.integers(1, 5))
    def upload_invalid(self, spoil, size):
        assert 400 <= post(self._collector.url, spoil(make_batch(size))).status < 500

    @rule()
    def restart(self):
        self._stop()
        self._start()

    @rule(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4))
    def kill_while_uploading(self, sizes):
        batches = [make_batch(size) for size in sizes]
        with ThreadPoolExecutor(len(sizes)) as pool:
            answers = [pool.submit(self._post, batch) for batch in batches]
            processes = processes_of(self._collector)
            kill(*processes)
        self._collector.process.wait()
        wait_until(lambda: not any(map(is_alive, processes)))
        self._stop()
        self._start()
        for batch, answer in zip(batches, answers, strict=True):
            was_taken = answer.exception() is None
            status = post(self._collector.url, batch).status
            assert status == 200 if was_taken else status in {200, 201}
            self._book(batch)

    @rule()
    def maintain(self):
        collector_output("maintain", "--store", self._store)

    @rule(sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=3))
    def count_reports_that_come_late(self, sizes):
        """Each time the reports of that day were counted before, but for the first."""
        today = dt.datetime.now(dt.UTC).date()

        async def add_and_count(store: Store):
            for batch in (_mixed_batch(*size) for size in sizes):
                records = _records_of(batch)
                new = NewBatch(
                    bytes.fromhex(batch.batch_id),
                    {MetricVersion(name, 1): it for name, it in records.items()},
                )
                for is_new in (True, False):
                    assert await store.append([new], _OLD, today) == [is_new]
                    counted = await store.counts.count_reports(_OLD + dt.timedelta(days=1))
                    assert counted == (len(batch.reports) if is_new else 0)
                for name, of_metric in records.items():
                    params = _METRICS[name].params
                    kept = self._counted.get(name, keep_none(params))
                    self._counted[name] = kept + keep_counts(of_metric.data, params)
                self._taken[batch.batch_id] = batch

        self._query(add_and_count)

    @rule(days=st.sampled_from([-1, 1]))
    def forget_ids(self, days):
        """Forget the ids from before yesterday, which are none, or all."""
        before = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=days)

        async def forget(store: Store) -> int:
            return await store.database.forget(before)

        forgotten = self._query(forget)
        if days > 0:
            assert forgotten >= bool(self._taken)  # imports have ids of their own
            self._taken.clear()
        else:
            assert not forgotten

    @precondition(lambda self: self._records or self._counted)
    @rule(metric=st.sampled_from([*_METRICS, _STRANGER.name]))
    def delete_metric(self, metric):
        of_metric = {key for key in self._records if key[0] == metric}
        if metric not in self._registry and not of_metric:
            return  # nobody has ever heard of it
        deleted = sum(self._records[key] for key in of_metric)
        for key in of_metric:
            del self._records[key]
        if metric in self._counted:
            deleted += self._counted.pop(metric).total
        said = collector_output("delete", metric, "--store", self._store, "--yes")
        assert f"deleted {deleted:,} reports" in said

    @rule()
    def export_and_import(self):
        """Move house: all reports go to another store, where no id is known."""
        self._stop()
        exported = self._folder / f"export {next(self._numbers)}"
        collector_output("export", "--store", self._store, "--to", str(exported))
        self._store = self.new_store()
        if self._records or self._counted:
            arguments = ["--metrics", str(self._metrics), "--store", self._store, str(exported)]
            for _ in range(2):  # the second time counts nothing
                collector_output("import", *arguments)
        self._taken.clear()
        self._start()

    @invariant()
    def store_holds_what_the_model_says(self):
        if self._running is None:
            return
        found = Counter(
            (name, record)
            for name, metric in {**_METRICS, _STRANGER.name: _STRANGER}.items()
            for record in stored_in(self._store, metric)
        )
        assert found == self._records
        assert self._query(_counts_in) == {
            name: pack_counts(kept) for name, kept in self._counted.items()
        }
        assert status_of(self._collector, "/livez") == 200

    def _book(self, batch: Batch) -> None:
        self._taken[batch.batch_id] = batch
        for report in batch.reports:
            self._records[report.metric, report.cohort.to_bytes(2, "little") + report.bits] += 1

    def _write_registry(self) -> None:
        text = registry_toml(*self._registry.values())
        self._metrics.write_text(text, encoding="utf-8")

    def _post(self, batch: Batch) -> int:
        return post(self._collector.url, batch).status

    def _start(self) -> None:
        self._running = ExitStack()
        options = [*_OPTIONS, "--workers", str(self.workers)]
        self._collector: Collector = self._running.enter_context(
            forked_collector(self._metrics, self._store, options)
        )

    def _stop(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def _query(self, query: Callable[[Store], Awaitable[_Found]]) -> _Found:
        async def ask() -> _Found:
            async with open_store(self._store, create=True) as store:
                return await query(store)

        return asyncio.run(ask())


def test_collector_on_sqlite_behaves_as_its_model():
    _play(CollectorModel, EXAMPLES, _STEPS)


@pytest.mark.long
def test_two_workers_on_postgresql_behave_as_their_model(postgresql_server):
    class Shared(CollectorModel):
        workers = 2

        def new_store(self) -> str:
            return self._stack.enter_context(postgresql_server.new_database())

    _play(Shared, 2 + EXAMPLES // 5, _STEPS // 2 if EXAMPLES > 10 else 3)


def _play(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize="HUBBUB_MODEL_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )


def _mixed_batch(homepage: int, search: int, stranger: int = 0) -> Batch:
    sizes = {_HOMEPAGE: homepage, _SEARCH: search, _STRANGER: stranger}
    batches = [make_batch(size, metric) for metric, size in sizes.items() if size]
    return Batch(tuple(report for batch in batches for report in batch.reports))


def _records_of(batch: Batch) -> dict[str, Records]:
    data: dict[str, bytes] = {}
    for report in batch.reports:
        record = report.cohort.to_bytes(2, "little") + report.bits
        data[report.metric] = data.get(report.metric, b"") + record
    return {name: Records(record_width(_METRICS[name].params.k), it) for name, it in data.items()}


async def _counts_in(store: Store) -> dict[str, bytes]:
    found = {}
    for name in _METRICS:
        async for stored in store.contents(MetricVersion(name, 1)):
            if isinstance(stored, StoredCounts):
                found[name] = pack_counts(stored.kept)
    return found
