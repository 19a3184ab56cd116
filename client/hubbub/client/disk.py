"""One thread's access to the client's database: reports come in, parcels go out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from hubbub.client.delivery import Courier, system_chance
from hubbub.client.intake import Entry, Settings
from hubbub.client.ledger import Ledger
from hubbub.client.metrics import Registry
from hubbub.client.outbox import Outbox, spool
from hubbub.client.storage import Storage, load_ledger, save_rows

MAX_AGE = 13 * 86_400.0
"""Seconds: a day less than the collector remembers batch ids."""

_HOLD_MARGIN = 30.0


class Disk:
    """A connection to the database, and what the client does with it.

    Parameters
    ----------
    folder : Path
        The state directory.
    registry : Registry
    settings : Settings
    clock : callable
        Seconds since the epoch.
    chance : callable
        Uniform in [0, 1), for jitter.

    Raises
    ------
    StateError
        If the database is missing or damaged.
    """

    def __init__(
        self,
        folder: Path,
        registry: Registry,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = system_chance,
    ) -> None:
        hold = settings.connect_timeout + settings.read_timeout + _HOLD_MARGIN
        self._registry = registry
        self._batch_size = settings.batch_size
        self._storage = Storage(folder)
        self.outbox = Outbox(self._storage, settings.max_outbox_bytes, MAX_AGE, hold)
        self.courier = Courier(
            self.outbox, settings.batch_size, settings.batch_seconds, clock, chance
        )

    def close(self) -> None:
        """Close the connection."""
        self.outbox.close()
        self._storage.close()

    def absorb(self, entries: Sequence[Entry]) -> tuple[Ledger, Counter[str]]:
        """Enter reports into the stored ledger and put them into the spool, in one transaction.

        Returns
        -------
        ledger : Ledger
            As it is stored now.
        refused : Counter of str
            Reports for which other processes' spending left no room, by reason.
        """
        refused: Counter[str] = Counter()
        kept: list[Entry] = []
        with self._storage.transaction() as connection:
            ledger = load_ledger(connection, self._registry)
            for entry in entries:
                if reason := ledger.refusal(entry.spend):
                    refused[reason] += 1
                else:
                    ledger.add(entry.spend)
                    kept.append(entry)
            save_rows(connection, [ledger.row(spend) for spend in {e.spend for e in kept}])
            spool(connection, [entry.report for entry in kept], self._batch_size)
        return ledger, refused
