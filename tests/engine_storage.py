"""What an engine's tasks may meet in object storage, for every engine whose workers are processes.

Each must end in the counts of all reports, or in an error that says what to do, and never in the
counts of some.
"""

import asyncio
import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from factories import make_metric, make_params
from hubbub.decoder.engines import Engine, Task, plan_tasks
from hubbub.decoder.reports import StoredReports, load_reports
from hubbub.protocol import CohortCounts
from hubbub.storage import (
    MetricVersion,
    MissingFileError,
    ParquetReader,
    locations,
    open_store,
    resolve,
)
from service.s3_server import BUCKET, Proxy, proxy_before, s3_server
from unit.collector.exchanges import export_all, fill

METRIC = make_metric(params=make_params(k=32, h=2, m=8, f=0.1, p=0.1, q=0.9))
_DAYS = [dt.date(2026, 3, day) for day in range(10, 13)]


@contextmanager
def running_s3() -> Iterator[Proxy]:
    """Run a server behind a proxy, and let this process and those that it starts use it."""
    with s3_server() as url, proxy_before(url) as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in proxy.environment.items():
            patch.setenv(name, value)
        locations._remote.cache_clear()  # of a bucket of this name on another server
        yield proxy
        locations._remote.cache_clear()


class Export:
    """A store of some days of reports, exported.

    folder: Empty.
    """

    def __init__(self, folder: Path, proxy: Proxy) -> None:
        self._store, self._proxy = f"sqlite:///{folder}/a.db", proxy
        self._address = resolve(f"s3://{BUCKET}/{folder.name}")
        self.add(range(500))

    def add(self, numbers: range) -> None:
        """Add reports to each day, and export all days."""

        async def add() -> None:
            async with open_store(self._store, create=True) as store:
                for day in _DAYS:
                    await fill(store, numbers, METRIC, day)
                await export_all(store, str(self._address))

        asyncio.run(add())

    def remove(self) -> None:
        """Delete the reports of the last day."""
        files = ParquetReader(self._address).files(MetricVersion(METRIC.name, METRIC.version))
        files[-1].path.remove()

    def expected(self) -> CohortCounts:
        """Count what is in the store."""
        return asyncio.run(load_reports(StoredReports(self._store), METRIC)).counts

    def count(self, engine: Engine, before_answer: Callable[[], None]) -> CohortCounts:
        """Count with an engine; call a function while all tasks wait for an answer."""
        waiting, asked = threading.Lock(), threading.Event()

        def pass_on(method: str, path: str) -> None:
            if method == "GET" and "/part-" in path:
                with waiting:
                    if not asked.is_set():
                        asked.set()
                        before_answer()

        def plan_and_listen(*given: object) -> list[Task]:
            tasks = plan_tasks(*given)  # type: ignore[arg-type]
            self._proxy.trouble = pass_on
            return tasks

        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("hubbub.decoder.reports.plan_tasks", plan_and_listen)
                found = asyncio.run(
                    load_reports(StoredReports(f"parquet:{self._address}"), METRIC, engine=engine)
                ).counts
        finally:
            self._proxy.trouble = lambda _method, _path: None
        assert asked.is_set()
        return found


def check_killed_worker(engine: Engine, export: Export, kill_worker: Callable[[], None]) -> None:
    """A worker that is killed while it waits for an answer: all is counted, once."""
    found, expected = export.count(engine, kill_worker), export.expected()
    np.testing.assert_array_equal(found.reports, expected.reports)
    np.testing.assert_array_equal(found.bits, expected.bits)


def check_vanished_object(engine: Engine, export: Export) -> None:
    """An object that is deleted while others are counted: it is named, and what to do."""
    with pytest.raises(
        MissingFileError, match=r"day=2026-03-12/part-\w+\.parquet.* run this again"
    ):
        export.count(engine, export.remove)


def check_exported_again(engine: Engine, export: Export) -> None:
    """All days are exported again while they are counted: an error; then the new reports."""
    with pytest.raises(MissingFileError, match="run this again"):
        export.count(engine, lambda: export.add(range(500, 700)))
    found, expected = export.count(engine, lambda: None), export.expected()
    assert found.total == 700 * len(_DAYS)
    np.testing.assert_array_equal(found.bits, expected.bits)
