"""Dask: the sums, results and errors of threads, whatever the type and method."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine_tasks import die, die_once, megabytes, refuse_three, scaled, write_export
from factories import make_metric, make_params
from hubbub.decoder.engines import (
    CountSettings,
    DaskEngine,
    EngineError,
    LocalEngine,
    count_task,
    count_tasks,
    open_dask,
    plan_tasks,
)
from hubbub.decoder.reports import Counting, StoredReports, load_reports
from hubbub.inference import AnomalyDetector, cores
from hubbub.protocol import Records, columns, record_width, repeat_keys, sample_step
from hubbub.storage import ReportFile, ReportFileError, read_records, resolve, write_records
from parameters import examples, quick_but
from stored_metrics import WAYS, Stored, numbers_of


@pytest.fixture(scope="module")
def dask_of_module() -> Iterator[DaskEngine]:
    """Start workers once for these tests: idle ones take time of all others."""
    with open_dask() as engine:
        yield engine


@pytest.fixture
def dask(dask_of_module) -> Iterator[DaskEngine]:
    """Leave all workers running to whoever comes next.

    One that was killed starts with this process's environment and folder of then: those of another
    test that changes them would end it for good.
    """
    yield dask_of_module
    dask_of_module._client.wait_for_workers(cores(), timeout=60)


METRIC = make_metric(params=make_params(k=24, h=2, m=5))


@pytest.fixture(scope="module")
def export(tmp_path_factory) -> str:
    return write_export(tmp_path_factory.mktemp("export"), METRIC.params)


def in_one_pass(export: str) -> tuple[object, object]:
    detector = AnomalyDetector(METRIC)
    counting = Counting(METRIC.params, detector=detector)
    for path in sorted(Path(export.removeprefix("parquet:")).rglob("*.parquet")):
        for records in read_records(path):
            counting.add(records.data)
    counts = counting.result()
    return (counts.reports.tolist(), counts.bits.tolist()), detector.result()


def test_tasks_count_what_one_pass_counts_and_look_at_the_same_reports(export, dask, monkeypatch):
    monkeypatch.setattr("hubbub.decoder.engines.TASK_REPORTS", 10_000)
    for engine in (LocalEngine(1), LocalEngine(3), dask):
        detector = AnomalyDetector(METRIC)
        counts = asyncio.run(
            load_reports(StoredReports(export), METRIC, engine=engine, detector=detector)
        ).counts
        found = (counts.reports.tolist(), counts.bits.tolist()), detector.result()
        assert found == in_one_pass(export)


@examples(100)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=8), st.integers(1, 500), st.integers(2, 64)
)
def test_tasks_cover_each_row_once_and_sample_as_one_pass_does(
    tmp_path_factory, groups, task_reports, size
):
    path = tmp_path_factory.mktemp("file") / "a.parquet"
    rng, params = np.random.default_rng(sum(groups)), make_params(k=64, m=3)
    width = record_width(params.k)
    step = sample_step(sum(groups), size)
    blocks = []
    for rows in groups:
        block = rng.integers(0, 2, (rows, width), dtype=np.uint8)
        block[:, 1] = 0
        blocks.append(Records(width, block.tobytes()))
    write_records(path, width, blocks)
    tasks = plan_tasks([ReportFile(resolve(path), None)], task_reports)
    assert [t.first_row_group for t in tasks] == [0, *(t.last_row_group + 1 for t in tasks[:-1])]
    assert sum(task.reports for task in tasks) == sum(groups)
    settings = CountSettings(params, step)
    keys = np.concatenate([count_task(settings, task).keys for task in tasks])
    whole = columns(Records(width, b"".join(block.data for block in blocks)))
    assert keys.tolist() == repeat_keys(whole, 0, step).tolist()
    assert len(keys) <= size


def test_results_of_dask_come_in_order_and_exceptions_as_they_were(dask):
    assert list(dask.map(scaled, 3, range(40))) == [3 * task for task in range(40)]
    results = dask.map(refuse_three, None, range(10))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)


def test_answer_that_takes_longer_than_a_look_at_the_workers_comes(dask, monkeypatch):
    monkeypatch.setattr("hubbub.decoder.engines._LOOK", 0.005)
    assert [len(answer) for answer in dask.map(megabytes, 20, range(3))] == [20_000_000] * 3


def test_task_whose_worker_is_killed_is_done_again(dask, tmp_path):
    assert list(dask.map(die_once, tmp_path / "flag", range(12))) == list(range(12))
    assert (tmp_path / "flag").exists()


@pytest.mark.long
def test_task_that_kills_every_worker_is_an_error():
    """On workers of its own: one that is killed while it starts, on a busy machine, is gone."""
    with open_dask() as engine, pytest.raises(EngineError, match="KilledWorker"):
        list(engine.map(die, None, [1]))


def test_file_that_is_gone_since_the_plan_is_refused(tmp_path, dask):
    export = write_export(tmp_path, METRIC.params, 1_000)
    path = min(Path(export.removeprefix("parquet:")).rglob("*.parquet"))
    tasks = plan_tasks([ReportFile(resolve(path), None)], 300)
    assert len(tasks) > 1
    path.unlink()
    for engine in (LocalEngine(), dask):
        with pytest.raises(ReportFileError, match="No such file"):
            list(count_tasks(engine, tasks, METRIC.params))


def test_workers_with_another_hubbub_are_named_with_both_versions(tmp_path):
    metadata = tmp_path / "hubbub-9.9.9.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: hubbub\nVersion: 9.9.9\n")
    with Cluster(tmp_path) as cluster:
        cluster.start_worker(tmp_path)
        with pytest.raises(EngineError) as caught, open_dask(cluster.master) as engine:
            list(engine.map(scaled, 1, [1]))
    assert "has hubbub 9.9.9, but this side has hubbub" in str(caught.value)


def test_workers_that_are_lost_or_have_no_hubbub_are_an_error_in_the_end(tmp_path, monkeypatch):
    with Cluster(tmp_path) as cluster:
        first = cluster.start_worker()
        with open_dask(cluster.master) as engine:
            assert list(engine.map(scaled, 2, [1])) == [2]
            # Only now: on a busy machine a worker takes longer to start.
            monkeypatch.setattr("hubbub.decoder.engines._PATIENCE", 3.0)
            first.kill()
            cluster.start_worker(without_hubbub(tmp_path))
            with pytest.raises(EngineError, match="no worker stayed"):
                list(engine.map(scaled, 2, range(10)))


def test_workers_that_die_at_their_start_are_an_error(tmp_path):
    """In a process of its own: other tests' workers would start in this one's environment, too."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'spawn_main' in ' '.join(sys.orig_argv):\n    os._exit(3)\n"
    )
    program = "from hubbub.decoder.engines import open_dask\nwith open_dask(): pass"
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "EngineError: --engine dask: this machine's own workers didn't start" in done.stderr


def without_hubbub(folder: Path) -> Path:
    """Write what lets a Python that imports from `folder` find no hubbub."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'hubbub':\n"
        "            raise ModuleNotFoundError(\"No module named 'hubbub'\")\n"
        "sys.meta_path.insert(0, Without())\n"
    )
    return folder


class Cluster:
    """A scheduler in this process, and workers that are processes of their own."""

    def __init__(self, folder: Path) -> None:
        from distributed import LocalCluster

        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []
        self._scheduler = LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None)
        self.master: str = self._scheduler.scheduler_address

    def start_worker(self, *site: Path) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(map(str, [*site, Path(__file__).parents[2]]))
        command = [sys.executable, "-m", "dask", "worker", self.master, "--host", "127.0.0.1"]
        worker = subprocess.Popen(
            [*command, "--no-nanny", "--no-dashboard", "--local-directory", str(self._folder)],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._workers.append(worker)
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self._scheduler.close()


@pytest.fixture
def small_pieces(monkeypatch):
    """Let three days of 2,000 reports be several tasks."""
    monkeypatch.setattr("hubbub.decoder.engines.TASK_REPORTS", 500)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("what", quick_but({"open string"}, WAYS))
def test_dask_decodes_an_export_as_threads_do_a_database(tmp_path, dask, monkeypatch, what):
    metric, value, options = WAYS[what]
    stored = Stored(tmp_path, metric, value)
    export, expected = stored.export(), numbers_of(stored.decode(**options))
    monkeypatch.setattr("hubbub.decoder.pipeline.open_dask", lambda *_: nullcontext(dask))
    assert numbers_of(stored.decode(export, engine="dask", **options)) == expected
