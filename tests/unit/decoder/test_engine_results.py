"""What is decoded on Dask is what threads decode, to the last bit, whatever the type and method."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from engine_tasks import die_once, refuse_three, scaled
from factories import make_params
from hubbub.decoder.reports import StoredReports, load_reports
from hubbub.decoder.tasks import (
    DistributedReports,
    PackSettings,
    distribute,
    pack_cohorts,
    plan_tasks,
)
from hubbub.inference.errors import UndecodableError
from hubbub.inference.likelihood.choice import Choice, Method
from hubbub.inference.packed import PackedReports, cut_cohorts
from hubbub.storage.errors import ReportFileError
from hubbub.storage.files.exports import report_files
from parameters import quick_but
from stored_metrics import NAMES, NOISE, WAYS, WORDS, Stored, numbers_of
from unit.decoder.packed import reports_of


@pytest.fixture
def small_pieces(monkeypatch):
    """Let three days of 2,000 reports be several tasks, and several parts."""
    monkeypatch.setattr("hubbub.decoder.tasks.TASK_REPORTS", 500)
    monkeypatch.setattr("hubbub.inference.packed.PART_REPORTS", 900)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("what", quick_but({"open string"}, WAYS))
def test_dask_decodes_an_export_as_threads_do_a_database(tmp_path, dask, monkeypatch, what):
    metric, value, options = WAYS[what]
    stored = Stored(tmp_path, metric, value)
    export, expected = stored.export(), numbers_of(stored.decode(**options))
    monkeypatch.setattr("hubbub.decoder.pipeline.open_engine", lambda *_: nullcontext(dask))
    assert numbers_of(stored.decode(export, engine="dask", **options)) == expected


@pytest.mark.usefixtures("small_pieces")
def test_many_reports_stay_with_workers_and_few_come(tmp_path, dask, monkeypatch):
    stored = Stored(tmp_path, WORDS, "word 3")
    spool_for = Choice(Method.LIKELIHOOD, NOISE, len(NAMES)).spool_for
    loading = load_reports(StoredReports(stored.export()), WORDS, engine=dask, spool_for=spool_for)
    many = asyncio.run(loading).whole
    assert isinstance(many, DistributedReports)
    monkeypatch.setattr("hubbub.inference.packed.PART_REPORTS", 6_000)
    loading = load_reports(StoredReports(stored.export()), WORDS, engine=dask, spool_for=spool_for)
    few = asyncio.run(loading).whole
    assert isinstance(few, PackedReports)
    assert (many.total, many.rows) == (few.total, few.rows)
    np.testing.assert_array_equal(many.by_cohort, few.by_cohort)


def test_parts_are_all_cohorts_once_and_hold_their_reports(monkeypatch):
    monkeypatch.setattr("hubbub.inference.packed.PART_REPORTS", 100)
    params = make_params(k=24, h=2, m=7, f=0.1, p=0.1, q=0.9)
    reports = reports_of({"a": 300, "b": 90}, params)
    parts = list(reports.map(lambda _shared, part, _threads: part, None, 1))
    assert len(parts) == len(cut_cohorts(params, 390)) == 4
    assert [len(cut_cohorts(params, n)) for n in (0, 100, 101, 10**9)] == [1, 1, 2, 7]
    assert sum(part.total for part in parts) == 390
    np.testing.assert_array_equal(np.concatenate([part.bits for part in parts]), reports.bits)
    np.testing.assert_array_equal(sum(part.by_cohort for part in parts), reports.by_cohort)


def test_what_dask_keeps_is_used_again_and_made_again_if_it_is_lost(dask, tmp_path):
    kept = dask.keep(scaled, 3, range(12))
    assert list(dask.map(scaled, 2, kept)) == [6 * task for task in range(12)]
    kept = dask.keep(scaled, 1, range(12))
    assert list(dask.map(die_once, tmp_path / "flag", kept)) == list(range(12))
    assert list(dask.map(scaled, 5, kept)) == [5 * task for task in range(12)]


def test_what_cant_be_kept_is_the_error_of_whoever_asks_for_it(dask):
    results = dask.map(scaled, 2, dask.keep(refuse_three, None, range(5)))
    assert [next(results) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(ValueError, match="three"):
        next(results)


@pytest.mark.usefixtures("small_pieces")
def test_file_that_is_gone_when_workers_read_it_is_named(tmp_path, dask):
    export = Stored(tmp_path, WORDS, "word 3").export().removeprefix("parquet:")
    path = min(Path(export).rglob("*.parquet"))
    counts = asyncio.run(load_reports(StoredReports(f"parquet:{export}"), WORDS)).counts
    tasks = plan_tasks(report_files(export))
    path.unlink()
    with pytest.raises(ReportFileError, match="No such file"):
        list(distribute(dask, tasks, NOISE, counts).map(_rows, None, 1))


def test_day_may_have_no_reports_of_the_cohorts_that_a_worker_keeps(tmp_path):
    export = Stored(tmp_path, WORDS, "word 3", n=1).export().removeprefix("parquet:")
    tasks = plan_tasks(report_files(export))
    asked = PackSettings(NOISE, tuple(tasks))
    parts = [pack_cohorts(asked, range(cohort, cohort + 1)) for cohort in range(NOISE.m)]
    whole = pack_cohorts(asked, range(NOISE.m))
    assert sum(part.total for part in parts) == whole.total == 3
    np.testing.assert_array_equal(np.concatenate([part.bits for part in parts]), whole.bits)


def test_more_than_a_worker_can_keep_is_refused(tmp_path, dask, monkeypatch):
    monkeypatch.setattr("hubbub.decoder.tasks.MOST_BYTES", 1_000)
    counts = asyncio.run(
        load_reports(StoredReports(Stored(tmp_path, WORDS, "word 3").url), WORDS)
    ).counts
    with pytest.raises(UndecodableError, match="24,000 bytes of reports in cohorts 0 to 7"):
        distribute(dask, [], NOISE, counts)


def _rows(_shared: None, part: PackedReports, _threads: int) -> int:
    return part.rows
