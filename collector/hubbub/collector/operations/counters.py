"""Counters that several processes share without ever waiting for each other.

Each process adds into memory of its own, one float64 (a slot) for each set of labels. Given a
directory, that memory is a file in it, and the one process that publishes the totals reads all
files. Invariants: a name is on disk before its slot is used. A file outlives its process, so that
no total goes back; its lock does not, which shows that the process has ended. Decision 12
says why this isn't prometheus_client's multiprocess mode.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from hubbub.protocol.errors import HubbubError

_SLOTS = 2**17  # a registry of 10,000 metrics has some ten counters each; all take 1 MiB a process
_BYTES = 8  # of a double, which counts exactly up to 2^53
_OVERFLOW = 0  # the slot of whatever has none of its own
_PREFIX = "hubbub-counters-"


class CounterError(HubbubError):
    """There is no room to count in."""


class CounterName(NamedTuple):
    """What a slot counts."""

    family: str
    labels: tuple[str, ...] = ()  # label values, in the family's order


class ProcessCounters(NamedTuple):
    """What one process has counted."""

    alive: bool  # whether the process still runs; the gauges of one that doesn't mean nothing
    numbers: Mapping[CounterName, float]


class Counters:
    """The counters of one process, and those of all others that use the same directory.

    Make it in the process that counts, not before a fork.

    `directory`: where all processes of one collector keep their counters; None: this is the only
    process. `values`: this process's counters, by slot. Adding to one is the whole cost of
    counting. Raises `CounterError` if the directory has no room for this process's counters.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._slots: dict[CounterName, int] = {}
        self._names_file = -1
        self._ended: dict[CounterName, float] = {}
        self._reading = threading.Lock()
        if directory is None:
            self._memory = mmap.mmap(-1, _SLOTS * _BYTES)
        else:
            self._memory, self._names_file = _make_files(directory)
        self._full = False
        self.values: memoryview[float] = memoryview(self._memory).cast("d")
        self.slot(CounterName("overflow"))

    def slot(self, name: CounterName) -> int:
        """Return the index in `values` of a counter.

        If the table or the disk is full, all further names share one slot, "overflow".
        """
        slot = self._slots.get(name)
        if slot is not None:
            return slot
        if self._full or not self._write(name):
            return _OVERFLOW
        slot = self._slots[name] = len(self._slots)
        self._full = len(self._slots) == _SLOTS
        return slot

    def slots(self, names: Sequence[CounterName]) -> int:
        """Return the slot of the first of several new counters; the others follow it.

        Raises `CounterError` if there is no room for all of them.
        """
        found = [self.slot(name) for name in names]
        if self._full:
            raise CounterError(f"counters: no room for their names in {self._directory}")
        return found[0]

    def read(self) -> list[ProcessCounters]:
        """Return what each process has counted; those that have ended are one, added up.

        With a directory, only one process may read: it keeps what ended ones have counted from
        then on, so that workers that die again and again don't fill the disk.
        """
        if self._directory is None:
            slots = list(self._slots.items())
            return [ProcessCounters(True, {name: self.values[slot] for name, slot in slots})]
        living = []
        with self._reading:
            for path in sorted(self._directory.glob("*.values")):
                counted = _read_files(path)
                if counted.alive:
                    living.append(counted)
                    continue
                for name, number in counted.numbers.items():
                    self._ended[name] = self._ended.get(name, 0.0) + number
                path.unlink()
                path.with_suffix(".names").unlink()
            return [*living, ProcessCounters(False, dict(self._ended))]

    def close(self) -> None:
        """Release the memory; what was counted stays in the directory."""
        self.values.release()
        self._memory.close()
        if self._names_file >= 0:
            os.close(self._names_file)
            self._names_file = -1

    def _write(self, name: CounterName) -> bool:
        """Put a name where others read it; after a line that isn't whole, no other may follow."""
        if self._names_file < 0:
            return True
        line = msgspec.json.encode(name) + b"\n"
        with contextlib.suppress(OSError):
            if os.write(self._names_file, line) == len(line):
                return True
        self._full = True
        return False


@contextmanager
def shared_directory() -> Iterator[Path]:
    """Make a directory for the processes of one collector, removed when the context closes.

    Directories that killed collectors have left behind are removed first.
    """
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            counted = list(directory.glob("*.values"))
            is_ours = directory.stat().st_uid == os.getuid()
            if is_ours and counted and not any(map(_is_alive, counted)):
                shutil.rmtree(directory)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as path:
        yield Path(path)


def _is_alive(path: Path) -> bool:
    with path.open("rb") as file:
        return not _lock(file)


def _make_files(directory: Path) -> tuple[mmap.mmap, int]:
    """Return the memory and the open file of names of a new process.

    The memory is a file that is locked for as long as this process lives.
    """
    stem = directory / secrets.token_hex(8)
    try:
        names = os.open(stem.with_suffix(".names"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        values = os.open(stem.with_suffix(".new"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Written, not just sized: a disk that is full later must not kill the process (SIGBUS).
            if os.write(values, bytes(_SLOTS * _BYTES)) < _SLOTS * _BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            # The map keeps the open file, and so the lock.
            fcntl.flock(values, fcntl.LOCK_EX)
            memory = mmap.mmap(values, _SLOTS * _BYTES)
        finally:
            os.close(values)
        stem.with_suffix(".new").rename(stem.with_suffix(".values"))
    except OSError as error:
        raise CounterError(f"counters: no room in {directory}: {error.strerror}") from error
    return memory, names


def _read_files(path: Path) -> ProcessCounters:
    with path.open("rb") as file:
        # Asked first: what an ended process has counted is then read whole.
        alive = not _lock(file)
        *lines, _incomplete = path.with_suffix(".names").read_bytes().split(b"\n")
        values = memoryview(file.read(len(lines) * _BYTES)).cast("d")
    names = (msgspec.json.decode(line, type=CounterName) for line in lines)
    return ProcessCounters(alive, dict(zip(names, values, strict=True)))


def _lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
