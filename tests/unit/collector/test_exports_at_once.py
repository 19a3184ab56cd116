"""Two exports of a day at once, step by step, in every order in which their steps can come.

A step is what others can see of it: a request to object storage, or a call of the system. So what
holds here holds for processes on different machines, if the storage shows at once what was written.
"""

import os
import random
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hubbub.storage import (
    Location,
    Manifest,
    ReportFile,
    ReportFileError,
    commit,
    read_manifest,
    resolve,
)

SECONDS = 60
REQUESTS = ("write_bytes", "entries", "remove", "read_bytes")
SHUFFLED = 250
Choose = Callable[[Sequence[int]], int]
"""From the exports that can take a step to the one that does."""


class Stepwise:
    """Exports of one day, of which one at a time goes on by a step.

    `failed`: whether each ended in an error, in the order in which they ended.
    """

    def __init__(self, day: Location, exports: int) -> None:
        self.failed: list[bool] = []
        self._day = day
        self._turns = [threading.Semaphore(0) for _ in range(exports)]
        self._back = threading.Semaphore(0)
        self._own = threading.local()
        self._waiting = set(range(exports))
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(exports)
        ]

    def run(self, choose: Choose, look: Callable[[], object]) -> None:
        """Let them take all their steps, and look at the day after each."""
        for number, thread in enumerate(self._threads):
            thread.start()
            self._step(number)
        while self._waiting:
            self._step(choose(sorted(self._waiting)))
            look()
        for thread in self._threads:
            thread.join()

    def wait(self) -> None:
        """Wait for one's turn, before a step; nothing else than exports has to."""
        number = getattr(self._own, "number", None)
        if number is not None:
            self._back.release()
            assert self._turns[number].acquire(timeout=SECONDS)

    def _step(self, number: int) -> None:
        self._turns[number].release()
        assert self._back.acquire(timeout=SECONDS)

    def _run(self, number: int) -> None:
        assert self._turns[number].acquire(timeout=SECONDS)
        self._own.number = number
        self.failed.append(not is_exported(self._day))
        self._waiting.discard(number)
        self._back.release()


def is_exported(day: Location) -> bool:
    """Export as `export_partitions` does, but for what is in the file; say whether it succeeded."""
    content = secrets.token_bytes(8)
    path, definition = day / f"part-{secrets.token_hex(8)}.parquet", content.hex()
    try:
        path.write_bytes(content)
        file = ReportFile(path, None, reports=1, size=len(content), definition=definition)
        commit(day, Manifest(definition, (file,)))
    except (ReportFileError, FileNotFoundError):
        return False
    return True


def is_whole(day: Location) -> bool:
    """Say whether a reader gets the day: what its manifest says, or an error."""
    manifest = read_manifest(day)
    if manifest is None:
        return True
    [file] = manifest.files
    try:
        assert file.path.read_bytes().hex() == manifest.definition
    except FileNotFoundError:
        return False
    return True


def every_order(run: Callable[[Choose], None]) -> int:
    """Run with every sequence of choices that there is; return how many there are."""
    runs, trail, chosen = 0, list[tuple[int, int]](), list[int]()

    def choose(options: Sequence[int]) -> int:
        pick = chosen[len(trail)] if len(trail) < len(chosen) else 0
        trail.append((pick, len(options)))
        return options[pick]

    while True:
        run(choose)
        runs += 1
        while trail and trail[-1][0] == trail[-1][1] - 1:
            trail.pop()
        if not trail:
            return runs
        chosen[:] = [pick for pick, _ in trail]
        chosen[-1] += 1
        trail.clear()


class Days:
    """Makes days on which two exports meet, and remembers what came of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.outcomes = folder, Counter[tuple[int, bool]]()
        self._monkeypatch = monkeypatch

    def meet(self, choose: Choose, steps: Sequence[tuple[object, str]], earlier: int = 0) -> None:
        day = resolve(self.folder / f"day-{self.outcomes.total()}")
        for _ in range(earlier):
            assert is_exported(day)
        exports = Stepwise(day, 2)
        with self._monkeypatch.context() as patched:
            for owner, name in steps:
                patched.setattr(owner, name, _waiting(exports, getattr(owner, name)))
            exports.run(choose, lambda: is_whole(day))
        ends_whole = is_whole(day)
        assert ends_whole or any(exports.failed)
        self.outcomes[(sum(exports.failed), ends_whole)] += 1
        assert is_exported(day)
        assert is_whole(day)
        assert len(day.entries()) == 2  # the file and the manifest


def _waiting(exports: Stepwise, function: Callable[..., object]) -> Callable[..., object]:
    def after_waiting(*arguments: object) -> object:
        exports.wait()
        return function(*arguments)

    return after_waiting


@pytest.fixture
def days(tmp_path, monkeypatch) -> Days:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    return Days(tmp_path, monkeypatch)


def test_every_order_of_requests_ends_in_a_whole_day_or_an_error(days):
    steps = [(Location, name) for name in REQUESTS]
    runs = every_order(lambda choose: days.meet(choose, steps))
    assert runs > 200
    # One after the other both succeed, whoever is first.
    assert days.outcomes[0, True] == 2


def test_shuffled_calls_on_a_disk_end_in_a_whole_day_or_an_error(days):
    """There is an earlier export of the day, and files under temporary names are seen as well."""
    chance = random.Random(18)  # noqa: S311
    steps = [(Location, "entries"), (Location, "remove"), (Location, "read_bytes"), (os, "fsync")]
    for _ in range(SHUFFLED):
        days.meet(chance.choice, steps, earlier=1)
    assert days.outcomes[1, True]
