"""What a client does next, in two lanes: one stores what is recorded, the other sends batches.

`Lanes` knows neither disk nor network, threads nor clocks: a driver tells it what has happened, and
waits until it answers a question with yes. `telemetry` drives it with two threads, `aio` with two
tasks. Invariant: what came to the disk after the sender had looked is seen before anything counts
as settled. A driver calls it under the recorder's lock.
"""

from __future__ import annotations


class Lanes:
    """The state that both lanes share.

    `batch_size`: recordings that are worth a transaction at once. `on_disk`: unsent reports there,
    when this process last looked. `withdrawn`: whether reports on disk are to be deleted before
    anything is sent. `closed`: whether both lanes are to end, the one that stores once nothing
    waits. `changes`: how often there came something that might be sent, or another reason to look.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self.on_disk = 0
        self.withdrawn = self.closed = False
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Forget what other threads or tasks were doing."""
        self.is_hurried = self._retries = self._is_storing = False
        self.changes = self._quiet_at = 0

    def close(self) -> None:
        """End both lanes."""
        self.closed = True

    def withdraw(self) -> None:
        """Have what is on disk deleted."""
        self.withdrawn = True

    def hurry(self) -> None:
        """Store and send without waiting for more, until `relax`."""
        self.is_hurried = True
        self.retry()

    def relax(self) -> None:
        """Wait for full batches again."""
        self.is_hurried = False

    def retry(self) -> None:
        """Look at once whether something can be sent, whatever failed before."""
        self._retries = True
        self.changes += 1

    def take_retry(self) -> bool:
        """Return whether to `retry`, once."""
        retries, self._retries = self._retries, False
        return retries

    def begin_storing(self) -> None:
        """Note that a transaction begins."""
        self._is_storing = True

    def end_storing(self, *, changed: bool) -> None:
        """Note that a transaction, or an attempt at one, is over, and whether it did anything."""
        self._is_storing = False
        self.changes += changed

    def clear(self, on_disk: int) -> None:
        """Note that what was withdrawn is deleted, and how much was left."""
        self.withdrawn, self.on_disk = False, on_disk
        self.changes += 1

    def end_sending(self, seen: int) -> None:
        """Note that no more can be sent now, of what there was when `changes` was `seen`."""
        self._quiet_at = seen

    def has_work(self, pending: int) -> bool:
        """Whether there is a reason to store, with so many recordings in memory."""
        return pending > 0 or self.withdrawn or self.closed

    def is_time_to_store(self, pending: int) -> bool:
        """Whether not to wait for more recordings."""
        return pending >= self._batch_size or self.is_hurried or self.withdrawn or self.closed

    def is_time_to_send(self, seen: int) -> bool:
        """Whether to look again, though the time to wait isn't over."""
        return self.closed or self.changes != seen

    def is_idle(self, pending: int) -> bool:
        """Whether all is on disk and no more can be sent now."""
        return not pending and not self._is_storing and self._quiet_at == self.changes

    def is_settled(self, pending: int) -> bool:
        """Whether nothing waits anywhere."""
        return self.is_idle(pending) and not self.on_disk
