"""When to send what: batches by size and time, back-off, and what an answer does to a batch.

`Courier` knows the disk and the clock but no network and no threads, so that a day of trouble can
be played through in a moment, and threads and asyncio share it. A step is either a parcel to be
sent now or the number of seconds until there may be something to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from hubbub.client.outbox import Outbox, Parcel
from hubbub.client.transport import Answer, Outcome, refusal_reason
from hubbub.protocol.wire import without_reports

_FIRST_DELAY = 1.0
_LONGEST_DELAY = 300.0
_LONGEST_REQUESTED_DELAY = 86_400.0
_LONGEST_WAIT = _LONGEST_REQUESTED_DELAY + _LONGEST_DELAY
_IDLE = 3600.0
_PAUSE = 0.5  # at least so long between looks at batches that another process holds
_LOOK_AGAIN = 60.0  # at most


class Settled(NamedTuple):
    """What an answer settled.

    Attributes
    ----------
    delivered, refused : int
        Reports.
    reason : str
        Why they were refused.
    gone : int
        Reports that are to be sent again, but were deleted meanwhile.
    """

    delivered: int = 0
    refused: int = 0
    reason: str = ""
    gone: int = 0


class Courier:
    """Decides what this process sends next.

    Parameters
    ----------
    outbox : Outbox
    batch_size : int
        Reports that make a batch due at once.
    batch_seconds : float
        Seconds after which fewer are due; drawn anew each time between half and one and a half of
        it, so that clients don't send in step.
    clock : callable
        Seconds since the epoch.
    chance : callable
        Uniform in [0, 1), for jitter.
    """

    def __init__(
        self,
        outbox: Outbox,
        batch_size: int,
        batch_seconds: float,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self._outbox = outbox
        self._batch_size = batch_size
        self._batch_seconds = batch_seconds
        self._clock = clock
        self._chance = chance
        self._failures = 0
        self._not_before = 0.0
        self._asked_to_wait_until = 0.0
        self._batch_due: float | None = None

    def next(self, *, hurry: bool = False) -> Parcel | float:
        """Return a parcel to send now, or the seconds until it is worth asking again.

        Parameters
        ----------
        hurry : bool
            Don't wait for a full batch.
        """
        now = self._clock()
        self._outbox.trim(now)
        wait = self._make_batch_if_due(now, hurry)
        if now < self._not_before <= now + _LONGEST_WAIT:
            return self._not_before - now
        parcel = self._outbox.hold_oldest(now)
        if parcel is None and self._outbox.batched():  # another process is sending
            wait = min(wait, _PAUSE if hurry else _LOOK_AGAIN)
        return parcel or max(wait, _PAUSE)

    def rush(self) -> None:
        """End our own back-off once; a wait that the collector asked for is kept."""
        self._failures = 0
        self._not_before = self._asked_to_wait_until

    def settle(self, parcel: Parcel, answer: Answer) -> Settled:
        """Let an answer take effect."""
        if answer.outcome is Outcome.RETRY:
            self._back_off(answer.retry_after)
            return Settled(gone=0 if self._outbox.put_back(parcel) else parcel.reports)
        self._failures = 0
        self._not_before = self._asked_to_wait_until = 0.0
        if answer.outcome is Outcome.DELIVERED:
            self._outbox.remove(parcel)
            return Settled(delivered=parcel.reports)
        return Settled(0, self._refuse(parcel, answer.refused), refusal_reason(answer))

    def _make_batch_if_due(self, now: float, hurry: bool) -> float:
        spooled = self._outbox.spooled()
        if not spooled:
            self._batch_due = None
            return _IDLE
        if self._batch_due is None:
            self._batch_due = now + self._batch_seconds * (0.5 + self._chance())
        wait = self._batch_due - now
        due = hurry or not 0 < wait <= 1.5 * self._batch_seconds
        if due or spooled >= self._batch_size:
            while spooled and (due or spooled >= self._batch_size):
                self._outbox.make_batch(self._batch_size, now)
                spooled = self._outbox.spooled()
            self._batch_due = None
            return 0.0
        return wait

    def _refuse(self, parcel: Parcel, indices: tuple[int, ...]) -> int:
        """Drop the reports that were named, or all; return how many."""
        if indices:
            body, kept = without_reports(parcel.body, indices)
            if 0 < kept < parcel.reports:
                self._outbox.shorten(parcel, body, kept)
                return parcel.reports - kept
        self._outbox.remove(parcel)
        return parcel.reports

    def _back_off(self, asked: float | None) -> None:
        """Wait a uniform time below a doubling bound (full jitter), and at least what was asked."""
        now = self._clock()
        bound = min(_FIRST_DELAY * 2.0**self._failures, _LONGEST_DELAY)
        self._failures = min(self._failures + 1, 30)
        requested = min(asked or 0.0, _LONGEST_REQUESTED_DELAY)
        self._asked_to_wait_until = now + requested
        self._not_before = now + requested + bound * self._chance()


def system_chance() -> float:
    """Return a uniform number in [0, 1) from the operating system."""
    return int.from_bytes(os.urandom(7), "little") / 2**56
