"""A batch on its way out -> a batch that only the holder of a private key can read.

On disk reports are as ever; they are sealed when they are sent, anew and under another id in each
attempt, so that the collector can't tell that two attempts are the same client's. A report's number
is keyed with the client's secret, so that it is the same in all attempts, whichever process makes
them, and tells nothing to anyone without the secret. Invariant: what can't be sealed isn't sent.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from hubbub.protocol.compact import section_name
from hubbub.protocol.errors import SealedError
from hubbub.protocol.hpke import seal
from hubbub.protocol.registry import Registry
from hubbub.protocol.sealed import (
    NUMBER_BYTES,
    OVERHEAD,
    SealedReport,
    SealingKey,
    key_in_force,
    least_payload,
    prefixed,
    write_sealed,
)
from hubbub.protocol.wire import Batch, Report, new_batch_id

_NUMBER_TAG = b"hubbub/1/sealed"


class Sealer:
    """Seals an application's batches to the first of its keys that isn't past its last day.

    Parameters
    ----------
    keys : str or sequence of str
        As `hubbub-collector keygen` prints them.
    registry : Registry

    Attributes
    ----------
    record_bytes : int
        What a sealed report takes.

    Raises
    ------
    SealedError
        If there is no key, one can't be used, or the package `cryptography` is missing.
    """

    def __init__(self, keys: str | Sequence[str], registry: Registry) -> None:
        texts = [keys] if isinstance(keys, str) else keys
        self._keys = [SealingKey.parse(text) for text in texts]
        if not self._keys:
            raise SealedError("sealed_to: no key; must be at least one")
        self._application = registry.application
        self._least = least_payload(registry.values())
        self.record_bytes = self._least + OVERHEAD
        for key in self._keys:  # one that nothing can be sealed to is found out now
            seal([SealedReport(bytes(NUMBER_BYTES), "x", 1, b"\0\0\0")], key, "", self._least)

    def seal(self, batch: Batch, secret: bytes, today: dt.date | None = None) -> bytes:
        """Return the sealed body of a batch, under an id of its own.

        Parameters
        ----------
        batch : Batch
            Its id is a part of the reports' numbers, and doesn't travel.
        secret : bytes
            The client's, which numbers its reports.
        today : datetime.date, optional
            The UTC day; by default that of the clock.

        Raises
        ------
        SealedError
            If all keys are past their last days, or there is no secret, without which numbers could
            be guessed.
        """
        if not secret:
            raise SealedError("secret: empty; must be the client's")
        key = key_in_force(self._keys, today or dt.datetime.now(dt.UTC).date())
        if key is None:
            last = max(key.last_day for key in self._keys)
            raise SealedError(f"no key to seal to: the last one ended on {last}")
        numbered = number_reports(batch.reports, batch.batch_id, secret, self._application)
        return write_sealed(new_batch_id(), seal(numbered, key, self._application, self._least))


def number_reports(
    reports: Iterable[Report], batch_id: str, secret: bytes, application: str
) -> list[SealedReport]:
    """Give each report of a batch its number (docs/protocol, section 9).

    It doesn't depend on the others of the batch, but on how many equal ones precede it.
    """
    seen: Counter[Report] = Counter()
    numbered = []
    for report in reports:
        record = report.record
        message = prefixed(
            _NUMBER_TAG,
            secret,
            application.encode(),
            section_name(report.metric, report.slice).encode(),
            report.version.to_bytes(4, "little"),
            bytes.fromhex(batch_id),
            record,
            seen[report].to_bytes(4, "little"),
        )
        number = hashlib.shake_256(message).digest(NUMBER_BYTES)
        numbered.append(SealedReport(number, report.metric, report.version, record, report.slice))
        seen[report] += 1
    return numbered
