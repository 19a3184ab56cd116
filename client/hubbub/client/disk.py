"""One thread's access to the client's database: reports come in, batches go out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from hubbub.client.account import Account, Decision
from hubbub.client.delivery import Courier, system_chance
from hubbub.client.encoder import Encoder
from hubbub.client.intake import Entry, Settings
from hubbub.client.ledger import AnswerKey, Verdict
from hubbub.client.outbox import Outbox, spool
from hubbub.client.storage import (
    Storage,
    count_waiting,
    forget_periods,
    load_account,
    save_definitions,
    save_memory,
    save_rows,
)
from hubbub.protocol.registry import Registry
from hubbub.protocol.wire import Report

MAX_AGE = 13 * 86_400.0
"""Seconds: a day less than the collector remembers batch ids."""

_HOLD_MARGIN = 30.0


class Absorbed(NamedTuple):
    """What became of reports on their way to the disk.

    Attributes
    ----------
    account : Account
        As it is stored now.
    stale : int
        Reports that were drawn anew from an earlier answer, because another process had taken the
        last room for a value.
    refused : Counter of str
        Reports for which other processes' answers left no room, by reason.
    waiting : int
        Reports that are on disk now.
    """

    account: Account
    stale: int
    refused: Counter[str]
    waiting: int


class Disk:
    """A connection to the database, and what the client does with it.

    Parameters
    ----------
    folder : Path
        The state directory.
    registry : Registry
    settings : Settings
    secret : bytes
        The client's; the database must belong to it.
    clock : callable
        Seconds since the epoch.
    chance : callable
        Uniform in [0, 1), for jitter.

    Raises
    ------
    StateError
        If the database is missing or damaged.
    UnavailableError
        If it can't be opened for now.
    """

    def __init__(
        self,
        folder: Path,
        registry: Registry,
        settings: Settings,
        secret: bytes,
        clock: Callable[[], float] = lambda: time.time(),  # noqa: PLW0108 (found when called)
        chance: Callable[[], float] = system_chance,
    ) -> None:
        hold = settings.connect_timeout + settings.read_timeout + _HOLD_MARGIN
        self._registry = registry
        self.secret = secret
        self._clock = clock
        self._encoders = {name: Encoder(metric, secret) for name, metric in registry.items()}
        self._storage = Storage(folder)
        self.outbox = Outbox(self._storage, secret, settings.max_outbox_bytes, MAX_AGE, hold)
        self.courier = Courier(
            self.outbox, settings.batch_size, settings.batch_seconds, clock, chance
        )

    def close(self) -> None:
        """Close the connection."""
        self.outbox.close()
        self._storage.close()

    def absorb(self, entries: Sequence[Entry]) -> Absorbed:
        """Enter reports into the stored account and put them into the spool, in one transaction.

        A report whose answer isn't the one that is stored is drawn anew from that.
        """
        refused: Counter[str] = Counter()
        answers: set[AnswerKey] = set()
        reports: list[Report] = []
        stale = 0
        with self._storage.transaction(self.secret) as connection:
            account = load_account(connection, self._registry)
            before = dict(account.memory)
            for entry in entries:
                decision = account.decide(entry.memo, entry.recorded_at)
                if decision.verdict is Verdict.REFUSED:
                    refused[decision.refusal] += 1
                    continue
                account.enter(decision)
                answers.add(decision.memo.answer)
                stale += decision.verdict is Verdict.STALE
                reports.append(self._report(entry, decision))
            save_rows(connection, map(account.ledger.row, answers))
            save_definitions(connection, [self._registry[answer.metric] for answer in answers])
            changed = [m for name, m in account.memory.items() if before.get(name) != m]
            save_memory(connection, self._registry, changed)
            spool(connection, reports, self._registry)
            forgotten = forget_periods(connection, self._clock())
            waiting = count_waiting(connection)
        if forgotten or any(memo.answer.metric in before for memo in changed):
            self._storage.purge_log()  # where the bits that were deleted still stand
        return Absorbed(account, stale, refused, waiting)

    def forget_periods(self) -> None:
        """Delete the answers of periods that are over, from the log too."""
        with self._storage.transaction(self.secret) as connection:
            forgotten = forget_periods(connection, self._clock())
        if forgotten:
            self._storage.purge_log()

    def _report(self, entry: Entry, decision: Decision) -> Report:
        if decision.memo.response == entry.memo.response:
            return entry.report
        return self._encoders[entry.report.metric].report(decision.memo.response)
