"""The decoder on Spark: the counts of threads, or a clear error. Needs Java: make test-spark."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from engine_tasks import check_kept, die, die_once, refuse_three, scaled, write_export
from evaluation.studies.cases import StringsCase, zipf
from factories import make_metric, make_params
from hubbub.decoder.engines import Keeper, open_engine
from hubbub.decoder.engines.local import LocalEngine
from hubbub.decoder.engines.spark import SparkEngine
from hubbub.decoder.errors import EngineError
from hubbub.decoder.reports.loading import StoredReports, load_days, load_reports
from hubbub.decoder.reports.tasks import DayFile, count_tasks, plan_tasks
from hubbub.decoder.screening.decoding import screen
from hubbub.inference.anomalies import AnomalyDetector
from hubbub.storage.errors import ReportFileError
from stored_metrics import WAYS, Stored, numbers_of

METRIC = make_metric(params=make_params(k=24, h=2, m=5))


@pytest.fixture(scope="module")
def spark() -> Iterator[Keeper]:
    with open_engine("spark", "local[2]") as engine:
        assert isinstance(engine, Keeper)
        # For engine_tasks. The JVM may have been started before, by other tests.
        engine._context.environment["PYTHONPATH"] = str(  # type: ignore[attr-defined]
            Path(__file__).parents[1]
        )
        yield engine


def test_counts_and_what_is_looked_at_are_those_of_threads(spark, tmp_path):
    export = write_export(tmp_path, METRIC.params)
    here, there = AnomalyDetector(METRIC), AnomalyDetector(METRIC)
    expected = asyncio.run(load_reports(StoredReports(export), METRIC, detector=here)).counts
    counts = asyncio.run(
        load_reports(StoredReports(export), METRIC, engine=spark, detector=there)
    ).counts
    np.testing.assert_array_equal(counts.reports, expected.reports)
    np.testing.assert_array_equal(counts.bits, expected.bits)
    assert there.result() == here.result()
    by_day = asyncio.run(load_days(StoredReports(export), METRIC)).by_day
    for day, of_day in asyncio.run(
        load_days(StoredReports(export), METRIC, engine=spark)
    ).by_day.items():
        np.testing.assert_array_equal(of_day.bits, by_day[day].bits)


def test_a_screened_list_is_that_of_threads(spark, tmp_path):
    params = make_params(k=64, h=2, m=16)
    case = StringsCase.made_up("screened", params, 200_000, zipf(20), 0, 20)
    run = case.collect_reports(3)[1]
    path = tmp_path / "list.txt"
    names = [*run.candidates, *(f"https://example.com/{i}" for i in range(200_000))]
    path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    found = screen(run.counts, params, str(path), spark).decoding
    expected = screen(run.counts, params, str(path), LocalEngine()).decoding
    assert len(found.candidates) >= 3
    assert found.candidates == expected.candidates
    for name in ("share", "std_error", "low", "high", "p_value", "q_value"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
    assert found.summary.detection_limit == pytest.approx(expected.summary.detection_limit)


@pytest.mark.parametrize("what", WAYS)
def test_an_export_is_decoded_as_threads_decode_a_database(tmp_path, spark, monkeypatch, what):
    monkeypatch.setattr("hubbub.decoder.reports.tasks.TASK_REPORTS", 500)
    monkeypatch.setattr("hubbub.inference.packed.PART_REPORTS", 900)
    monkeypatch.setattr("hubbub.decoder.pipeline.open_engine", lambda *_: nullcontext(spark))
    metric, value, options = WAYS[what]
    stored = Stored(tmp_path, metric, value)
    found = numbers_of(stored.decode(stored.export(), engine="spark", **options))
    monkeypatch.undo()
    monkeypatch.setattr("hubbub.inference.packed.PART_REPORTS", 900)
    assert found == numbers_of(stored.decode(**options))


def test_what_is_kept_is_used_again_and_made_again_if_it_is_lost(tmp_path, spark):
    check_kept(spark, tmp_path / "flag")
    results = spark.keep(refuse_three, None, range(5)).map(scaled, 2)
    with pytest.raises(ValueError, match="three"):
        list(results)


def test_nothing_stays_in_a_session_that_a_program_has(spark):
    assert isinstance(spark, SparkEngine)
    kept = spark.keep(scaled, 3, range(3))
    assert list(kept.map(scaled, 2)) == [0, 6, 12]
    assert persisted(spark) > 0
    spark.release()
    assert persisted(spark) == 0


def persisted(spark: SparkEngine) -> int:
    return int(spark._context._jsc.getPersistentRDDs().size())


def test_results_come_in_order_and_exceptions_as_they_were(spark):
    assert list(spark.map(scaled, 3, range(40))) == [3 * task for task in range(40)]
    with pytest.raises(ValueError, match="three"):
        list(spark.map(refuse_three, None, range(10)))


def test_task_whose_worker_is_killed_is_done_again(spark, tmp_path):
    assert list(spark.map(die_once, tmp_path / "flag", range(12))) == list(range(12))
    assert (tmp_path / "flag").exists()


def test_task_that_kills_every_worker_is_an_error(spark):
    with pytest.raises(EngineError, match="exited unexpectedly"):
        list(spark.map(die, None, [1]))


def test_file_that_is_gone_since_the_plan_is_refused(spark, tmp_path):
    export = write_export(tmp_path, METRIC.params, 1_000)
    path = min(Path(export.removeprefix("parquet:")).rglob("*.parquet"))
    tasks = plan_tasks([DayFile(path)], 300)
    path.unlink()
    with pytest.raises(ReportFileError, match="No such file"):
        list(count_tasks(spark, tasks, METRIC.params))


def test_without_java_what_is_missing_is_named(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(EngineError, match="needs Java 17"), open_engine("spark"):
        pass
