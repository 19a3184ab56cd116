"""The switch as a client obeys it: which metrics it doesn't report for now, and why.

The database keeps what was obeyed last and when it was asked for, for all processes of the client.
Invariant: what is off is neither recorded, charged nor sent, and everything else stays as it was:
answers, accounts and periods are the same after a switch is off and on again.
"""

from __future__ import annotations

import math
from collections import Counter
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

    Parameters
    ----------
    document : SwitchDocument, optional
    secret : bytes
        The client's, which says of which samples it is a part.
    asked : float
        When it was asked for last, in seconds since the epoch.
    is_signed : bool
        Whether the document was, with a key of the app.
    """

    def __init__(
        self,
        document: SwitchDocument | None = None,
        secret: bytes = b"",
        asked: float = -math.inf,
        *,
        is_signed: bool = False,
    ) -> None:
        self.document = document
        self.is_signed = is_signed
        self._secret = secret
        self._asked = asked
        self._reasons: dict[tuple[str, int], str | None] = {}

    def refusal(self, metric: str, version: int) -> str | None:
        """Return why this client doesn't report a metric's version, if so."""
        if self.document is None or not self.document.rates:
            return None
        key = (metric, version)
        if key not in self._reasons:
            self._reasons[key] = self._refusal(self.document, *key)
        return self._reasons[key]

    def _refusal(self, document: SwitchDocument, metric: str, version: int) -> str | None:
        rate = document.rate(metric, version)
        if rate == 0:
            return SWITCHED_OFF
        if rate == 1 or sample_draw(metric, document.application, self._secret) < rate:
            return None
        return NOT_SAMPLED

    def is_due(self, now: float) -> bool:
        """Whether a day has passed since it was asked for; also if a clock was set back."""
        return not self._asked <= now < self._asked + SECONDS_A_DAY

    def without_refused(
        self, recordings: Sequence[Recording]
    ) -> tuple[Sequence[Recording], Counter[str]]:
        """Return the recordings that may be reported, and the others by reason."""
        reasons = [self.refusal(*recording.own.answer[:2]) for recording in recordings]
        kept = [r for r, reason in zip(recordings, reasons, strict=True) if reason is None]
        return kept, Counter(reason for reason in reasons if reason is not None)


NO_SWITCH = Switch()


def load_switch(connection: sqlite3.Connection, secret: bytes) -> Switch:
    """Return the switch as it is stored."""
    row = connection.execute("SELECT asked, signed, body FROM switch").fetchone()
    if row is None:
        return NO_SWITCH
    asked, signed, body = row
    from hubbub.protocol.switch import parse_document

    try:
        document = parse_document(body) if body else None
    except SwitchError:  # of a later version of this client
        document = None
    return Switch(document, secret, asked, is_signed=bool(signed))


def claim_fetch(connection: sqlite3.Connection, now: float) -> bool:
    """Return whether this process is to ask for the switch now; then none does so for a day."""
    if not load_switch(connection, b"").is_due(now):
        return False
    connection.execute(
        "INSERT INTO switch VALUES (1, ?, 0, x'') ON CONFLICT DO UPDATE SET asked = excluded.asked",
        (now,),
    )
    return True


def keep_switch(connection: sqlite3.Connection, file: SwitchFile, *, is_signed: bool) -> bool:
    """Store what is to be obeyed from now on; return whether it is.

    A signed document isn't replaced by one that was issued before: whoever keeps old files, and
    has no key, can't bring them back. Without a signature anybody could state any time.
    """
    kept = load_switch(connection, b"")
    later = kept.document.issued if kept.is_signed and kept.document else ""
    if is_signed and file.document.issued < later:
        return False
    connection.execute("UPDATE switch SET signed = ?, body = ?", (is_signed, file.body))
    return True
