"""Numbers that several processes count together: totals that never go back, whoever ends."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hubbub.collector.operations.counters import (
    CounterError,
    CounterName,
    Counters,
    shared_directory,
)
from hubbub.collector.operations.metrics import aggregate

_COUNTED = CounterName("duplicates")
_GAUGE = CounterName("queue_depth")
_COUNTER = """
import sys
from pathlib import Path
from hubbub.collector.operations.counters import CounterName, Counters
counters = Counters(Path(sys.argv[1]))
counted, gauge = counters.slot(CounterName("duplicates")), counters.slot(CounterName("queue_depth"))
counters.values[gauge] = 7
for line in sys.stdin:
    for _ in range(int(line)):
        counters.values[counted] += 1
    print("done", flush=True)
"""


class _Counter:
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
def _counting(directory: Path) -> Iterator[_Counter]:
    command = [sys.executable, "-c", _COUNTER, str(directory)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _Counter(process)
        finally:
            process.kill()


def test_totals_are_those_of_all_processes_and_survive_their_end():
    with shared_directory() as directory, _counting(directory) as one, _counting(directory) as two:
        ours = Counters(directory)
        ours.values[ours.slot(_COUNTED)] += 5
        one.count(100_000)
        two.count(1)
        assert _total(ours, _COUNTED) == 100_006
        assert _total(ours, _GAUGE) == 14
        one.end(signal.SIGKILL)
        assert _total(ours, _COUNTED) == 100_006  # a counter never goes back
        assert _total(ours, _GAUGE) == 7  # but nothing waits in a process that has ended
        two.count(10)
        assert _total(ours, _COUNTED) == 100_016
        two.end(signal.SIGTERM)
        with _counting(directory) as three:
            three.count(3)
            assert _total(ours, _COUNTED) == 100_019
        ours.close()


def test_processes_that_end_leave_no_files_behind_once_they_were_read():
    with shared_directory() as directory:
        ours = Counters(directory)
        for _ in range(3):
            with _counting(directory) as other:
                other.count(2)
        assert _total(ours, _COUNTED) == 6
        assert len(list(directory.iterdir())) == 2  # ours: names and values
        assert _total(ours, _COUNTED) == 6
        ours.close()
    assert not directory.exists()


def test_directory_of_a_killed_collector_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with shared_directory() as living, _counting(living) as counter:
        counter.count(1)
        deserted = tmp_path / living.name.replace("counters-", "counters-deserted")
        deserted.mkdir()
        with _counting(deserted) as killed:
            killed.count(1)
        new = tmp_path / "hubbub-counters-new"  # in which nobody has counted yet
        new.mkdir()
        with shared_directory():
            assert not deserted.exists()
            assert living.exists()
            assert new.exists()
        counter.count(1)


def test_process_alone_needs_no_directory():
    counters = Counters()
    counters.values[counters.slot(_COUNTED)] += 2
    assert counters.slot(_COUNTED) == counters.slot(_COUNTED)
    assert _total(counters, _COUNTED) == 2
    counters.close()


def test_directory_that_is_gone_is_explained(tmp_path):
    with pytest.raises(CounterError, match=r"counters: no room in .*: No such file"):
        Counters(tmp_path / "missing")


def _total(counters: Counters, name: CounterName) -> float:
    return aggregate(counters.read()).numbers[name]
