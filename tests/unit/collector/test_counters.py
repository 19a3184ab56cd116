"""Numbers that several processes count together: totals that never go back, whoever ends."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hubbub.collector import (
    CounterError,
    Metrics,
    MetricValues,
    forget_gauges,
    share,
    shared_directory,
)

_WORKER = """
import sys
from pathlib import Path
from hubbub.collector.operations.metrics import Metrics, share
directory = Path(sys.argv[1])
share(directory, sys.argv[2])
metrics = Metrics(directory)
metrics.reloaded(succeeded=False)
for line in sys.stdin:
    for _ in range(int(line)):
        metrics.count("requests", 201, "stored")
        metrics.observe("commit_seconds", 0.5)
    print("done", flush=True)
"""


class _Worker:
    """A process that counts as often as it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def count(self, times: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(times, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait()


@contextmanager
def _counting(directory: Path, name: str) -> Iterator[_Worker]:
    command = [sys.executable, "-c", _WORKER, str(directory), name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _Worker(process)
        finally:
            process.kill()


def _totals(directory: Path) -> MetricValues:
    return Metrics(directory).snapshot()


def test_totals_are_those_of_all_processes_and_survive_their_end(tmp_path):
    with _counting(tmp_path, "0") as one, _counting(tmp_path, "1") as two:
        one.count(20_000)
        two.count(1)
        totals = _totals(tmp_path)
        assert totals.of("requests", "201", "stored") == 20_001
        assert totals.of("commit_seconds", "sum") == 10_000.5
        assert totals.total("reload_failing") == 2
        one.end(signal.SIGKILL)
        forget_gauges(tmp_path, "0")
        totals = _totals(tmp_path)
        assert totals.of("requests", "201", "stored") == 20_001  # a counter never goes back
        assert totals.of("commit_seconds", "+Inf") == 20_001
        assert totals.total("reload_failing") == 1  # but nothing fails in what has ended
        with _counting(tmp_path, "0") as three:
            three.count(3)
            assert _totals(tmp_path).of("requests", "201", "stored") == 20_004
            assert len(list(tmp_path.iterdir())) == 2 * 4  # however often one ends


def test_a_disk_that_is_full_later_holds_what_is_counted(tmp_path):
    """A page of a file that was only sized would end the process (SIGBUS)."""
    with _counting(tmp_path, "0") as worker:
        worker.count(1)
        for file in tmp_path.iterdir():
            found = file.stat()
            assert found.st_blocks * 512 >= found.st_size == 2**20


def test_directory_of_a_killed_collector_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("prometheus_client.values.ValueClass", None)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    deserted, new = (tmp_path / f"hubbub-counters-{name}" for name in ("deserted", "new"))
    with shared_directory() as living:
        for directory in (deserted, new):
            directory.mkdir()
            (directory / "counter_0.db").touch()
        for old in (living, deserted):
            os.utime(old, (0, 0))
        with shared_directory() as other:
            assert set(tmp_path.iterdir()) == {living, new, other}
    assert set(tmp_path.iterdir()) == {new}


def test_directory_that_is_gone_is_explained(tmp_path):
    with pytest.raises(CounterError, match=r"counters: no room in .*: No such file"):
        share(tmp_path / "missing", "0")
