"""The switch as a client obeys it: which metrics it doesn't report for now, and why.

The database keeps what was obeyed last and when it was asked for, for all processes of the client.
Invariant: what is off is neither recorded, charged nor sent, and everything else stays as it was:
answers, accounts and periods are the same after a switch is off and on again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hubbub.client.ledger import NOT_SAMPLED, SWITCHED_OFF, Recording
from hubbub.client.schedule import sample_draw
from hubbub.protocol.errors import SwitchError
from hubbub.protocol.metrics import SECONDS_A_DAY

if TYPE_CHECKING:
    import sqlite3

    from hubbub.protocol.switch import SwitchDocument, SwitchFile


class Switch:
    """What is off for one client.

    `secret`: the client's, which says of which samples it is a part. `asked`: when it was asked for
    last, in seconds since the epoch.
    """

    def __init__(
        self,
        document: SwitchDocument | None = None,
        secret: bytes = b"",
        asked: float = -math.inf,
    ) -> None:
        self.document = document
        self._secret = secret
        self._asked = asked
        self._reasons: dict[tuple[str, int, int | None], str | None] = {}

    def is_off(self, metric: str, version: int) -> bool:
        """Whether nobody reports a metric's version."""
        return self.document is not None and self.document.rate(metric, version) == 0

    def refusal(self, recording: Recording) -> str | None:
        """Return why this client doesn't report a recording, if so."""
        if self.document is None or not self.document.rates:
            return None
        metric, version, _ = recording.own.answer
        key = (metric, version, recording.period and recording.period.number)
        if key not in self._reasons:
            self._reasons[key] = self._refusal(self.document, *key)
        return self._reasons[key]

    def _refusal(
        self, document: SwitchDocument, metric: str, version: int, period: int | None
    ) -> str | None:
        rate = document.rate(metric, version)
        if rate == 0:
            return SWITCHED_OFF
        if rate == 1 or sample_draw(metric, document.application, self._secret, period) < rate:
            return None
        return NOT_SAMPLED

    def is_due(self, now: float) -> bool:
        """Whether a day has passed since it was asked for; also if a clock was set back."""
        return not self._asked <= now < self._asked + SECONDS_A_DAY

    def sort(self, recordings: Sequence[Recording]) -> dict[str | None, list[Recording]]:
        """Return the recordings that may be reported, under None, and the others by reason."""
        by_reason: dict[str | None, list[Recording]] = {None: []}
        for recording in recordings:
            by_reason.setdefault(self.refusal(recording), []).append(recording)
        return by_reason


NO_SWITCH = Switch()


def load_switch(connection: sqlite3.Connection, secret: bytes, key: str) -> Switch:
    """Return the switch as it is stored for apps with a key, or with none ("").

    What another key signed, or none, isn't obeyed: an app that got a key, or another one, may have
    been given a file by whoever made it necessary.
    """
    row = connection.execute("SELECT asked, body FROM switch WHERE key = ?", (key,)).fetchone()
    if row is None:
        return NO_SWITCH
    asked, body = row
    from hubbub.protocol.switch import parse_document

    try:
        document = parse_document(body) if body else None
    except SwitchError:  # of a later version of this client
        document = None
    return Switch(document, secret, asked)


def claim_fetch(connection: sqlite3.Connection, now: float, key: str) -> bool:
    """Return whether this process is to ask for the switch now; then none does so for a day."""
    if not load_switch(connection, b"", key).is_due(now):
        return False
    connection.execute(
        "INSERT INTO switch VALUES (?, ?, x'') ON CONFLICT DO UPDATE SET asked = excluded.asked",
        (key, now),
    )
    return True


def keep_switch(connection: sqlite3.Connection, file: SwitchFile, key: str) -> bool:
    """Store what is to be obeyed from now on; return whether it is.

    A document isn't replaced by one that the same key signed before: whoever keeps old files, and
    has no key, can't bring them back. Without a signature anybody could state any time.
    """
    kept = load_switch(connection, b"", key).document
    if key and kept and file.document.issued < kept.issued:
        return False
    connection.execute("UPDATE switch SET body = ? WHERE key = ?", (file.body, key))
    return True
