"""Clients that record at given times, and what becomes of each recording.

With a disk each recording is committed at once, and what became of it is read from what is stored.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from factories import make_secret, toml_value
from hubbub.client import Registry, Spending
from hubbub.client.delivery import DeliveryLoop, DeliverySettings
from hubbub.client.encoder import PermanentResponse
from hubbub.client.ledger import Account, AnswerKey, Charges
from hubbub.client.outbox import DATABASE
from hubbub.client.recorder import Recorder
from hubbub.client.state import open_state, read_account
from hubbub.protocol import Value

SETTINGS = DeliverySettings(100, 3600.0, 2**24, 1.0)
MOST_PENDING = 10_000


class Outcome(NamedTuple):
    """What became of a recording, and the number of the answer that is reported, if any."""

    result: str
    answer: int | None


REFUSED = Outcome("refused", None)


def registry_of(rules: dict[str, Any]) -> Registry:
    """Read a registry from JSON, where dates are texts."""
    lines = [f"{key} = {toml_value(value)}" for key, value in rules.items() if key != "metrics"]
    for name, entry in rules["metrics"].items():
        lines.append(f"[metrics.{name}]")
        lines += [
            f"{key} = {value if key == 'expires' else toml_value(value)}"
            for key, value in entry.items()
        ]
    return Registry.parse("\n".join(lines))


class MemoryClient:
    """A process that never gets to its disk."""

    def __init__(self, registry: Registry, secret: bytes | None = None) -> None:
        self._recorder = _recorder(registry)
        self._account = Account(registry)
        self._recorder.open(secret or make_secret(), self._account)
        self._numbers: dict[AnswerKey, int] = {}
        self._responses: list[PermanentResponse] = []

    def record(self, time: float, metric: str, value: Value) -> Outcome:
        _take(self._recorder, time, metric, value)
        (outcome,) = self.commit() or [REFUSED]
        return outcome

    def take(self, time: float, metric: str, value: Value) -> bool:
        """Record a value, and leave the rest to `commit`; return whether it waits."""
        waiting = len(self._recorder.pending)
        _take(self._recorder, time, metric, value)
        return len(self._recorder.pending) > waiting

    def commit(self) -> list[Outcome]:
        """Charge for what waits, one by one, to see what becomes of each."""
        outcomes = []
        for recording in self._recorder.drain():
            account = self._account = self._account.copy()
            charges = account.charge([recording])
            self._recorder.settle(account, charges)
            outcomes.append(self._outcome(charges))
        return outcomes

    def _outcome(self, charges: Charges) -> Outcome:
        if charges.refused:
            return REFUSED
        (cached,) = charges.admitted
        if cached.answer not in self._numbers:
            self._responses.append(cached.response)
            return Outcome("admitted", _number(self._numbers, cached.answer))
        number = self._numbers[cached.answer]
        assert cached.response == self._responses[number]
        return Outcome("stale" if charges.stale else "again", number)

    def spending(self) -> Spending:
        return self._recorder.spending()


class Process:
    """A process of an app, on a real state directory."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self._folder = folder
        self.registry = registry
        self.recorder = _recorder(registry)
        state = open_state(folder, registry)
        self.recorder.open(state.secret, state.account)

    def record(self, time: float, metric: str, value: Value) -> None:
        _take(self.recorder, time, metric, value)

    def commit_reports(self, time: float) -> Charges:
        """Bring to the disk what was recorded, as the writer's thread does."""
        delivery = DeliveryLoop(self.recorder, self._folder, SETTINGS, lambda: time)
        with closing(delivery.open()) as outbox:
            charges = delivery.store(outbox)
        assert charges is not None
        return charges

    def store(self, time: float, metric: str, value: Value) -> Charges:
        """Record a value, and bring it to the disk at once."""
        self.record(time, metric, value)
        return self.commit_reports(time)


class DiskClient:
    """Processes that share a state directory and take turns, each committing what it recorded.

    Without processes a new one is started for each recording, under `registry`.
    """

    def __init__(
        self, folder: Path, registry: Registry, processes: int = 0, secret: bytes | None = None
    ) -> None:
        self._folder = folder
        with pytest.MonkeyPatch.context() as patch:
            if secret is not None:
                patch.setattr("os.urandom", lambda n: secret[:n])
            open_state(folder, registry)
        self._processes = [Process(folder, registry) for _ in range(processes)]
        self._numbers: dict[AnswerKey, int] = {}
        self._turn = 0
        self.registry = registry

    def record(self, time: float, metric: str, value: Value) -> Outcome:
        process = self._next_process()
        before, stale = stored_reports(self._folder), process.recorder.stale
        process.record(time, metric, value)
        process.commit_reports(time)
        after = stored_reports(self._folder)
        reported = [answer for answer in after if after[answer] != before.get(answer, 0)]
        if not reported:
            return REFUSED
        (answer,) = reported
        assert after[answer] == before.get(answer, 0) + 1
        if answer not in before:
            return Outcome("admitted", _number(self._numbers, answer))
        result = "stale" if process.recorder.stale > stale else "again"
        return Outcome(result, self._numbers[answer])

    def spending(self) -> Spending:
        return read_account(self._folder, self.registry).spending()

    def _next_process(self) -> Process:
        if not self._processes:
            return Process(self._folder, self.registry)
        self._turn += 1
        return self._processes[self._turn % len(self._processes)]


def stored_reports(folder: Path) -> dict[AnswerKey, int]:
    """Return of how many reports of each answer the disk knows."""
    query = "SELECT metric, version, answer, reports FROM answers"
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        return {AnswerKey(*row[:3]): row[3] for row in connection.execute(query)}


def _number(numbers: dict[AnswerKey, int], answer: AnswerKey) -> int:
    return numbers.setdefault(answer, len(numbers))


def _recorder(registry: Registry) -> Recorder:
    return Recorder(registry, MOST_PENDING, MOST_PENDING, development=True)


def _take(recorder: Recorder, time: float, metric: str, value: Value) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hubbub.client.recorder.time", SimpleNamespace(time=lambda: time))
        recorder.record(metric, value)
