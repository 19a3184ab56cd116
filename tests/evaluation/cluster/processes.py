"""The processes of a service: started, killed, and started again in their places."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import ClassVar

from hubbub.simulations import Collector, running_collector
from service.faults import kill, processes_of, workers_of

_COLLECTORS = 2
_OPTIONS = ["--workers", "2", "--log-level", "error"]
_SECONDS = 1800.0
_CLEAR = re.compile(r"Error: .*")


class ClusterError(Exception):
    """A part that should have worked didn't, or a figure isn't what it must be."""


class Program:
    """A Python module that runs as a process."""

    _started: ClassVar[list[Program]] = []

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._module = module
        self._arguments = arguments
        self.start()
        self._started.append(self)

    @classmethod
    def kill_all(cls) -> None:
        for program in cls._started:
            if program.is_running:
                program.kill()

    def start(self) -> None:
        """Start it, in place of one that was killed."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, *self._arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def finish(self) -> None:
        """Wait for its end.

        Raises ClusterError: If it fails.
        """
        if failure := self._failure():
            raise ClusterError(f"{self._module}: {failure}")

    def refusal(self) -> str:
        """Wait for its end, which must be an error in a line, and return that.

        Raises ClusterError: If it succeeds, or fails in other words.
        """
        failure = self._failure()
        if failure is None or not _CLEAR.fullmatch(failure):
            raise ClusterError(f"{self._module}: expected an error in a line: {failure}")
        return failure

    def _failure(self) -> str | None:
        _, errors = self._process.communicate(timeout=_SECONDS)
        return errors.strip() or "no reason" if self._process.returncode else None


class Service:
    """The collectors, which keep their addresses."""

    def __init__(self, registry: Path, store: str, stack: ExitStack) -> None:
        self._registry = registry
        self._store = store
        self._stack = stack
        self._collectors = [self._start() for _ in range(_COLLECTORS)]

    @property
    def urls(self) -> list[str]:
        return [collector.url for collector in self._collectors]

    def kill_worker(self) -> None:
        kill(workers_of(self._collectors[0])[0])

    def kill_collector(self) -> None:
        killed = self._collectors[-1]
        kill(*processes_of(killed))
        killed.process.wait()
        self._collectors[-1] = self._start(killed.url.rpartition(":")[2])

    def _start(self, port: str = "0") -> Collector:
        options = [*_OPTIONS, "--port", port]
        return self._stack.enter_context(running_collector(self._registry, self._store, options))


def wait_for(condition: Callable[[], bool], programs: Sequence[Program] = ()) -> None:
    """Wait until a condition holds.

    Raises ClusterError: If a program fails before, or all end, or it takes too long.
    """
    deadline = time.monotonic() + _SECONDS
    while not condition():
        ended = [program for program in programs if not program.is_running]
        for program in ended:
            program.finish()
        if programs and len(ended) == len(programs):
            raise ClusterError("programs ended before one could be killed")
        if time.monotonic() > deadline:
            raise ClusterError(f"still waiting after {_SECONDS:.0f} s")
        time.sleep(0.01)


def talking_to(port: int, pids: Sequence[int]) -> list[int]:
    return [pid for pid in pids if _sockets(pid) & _connections(pid, port)]


def _sockets(pid: int) -> set[str]:
    found = set()
    with suppress(FileNotFoundError):  # it ended
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found.add(str(path.readlink()))
    return found


def _connections(pid: int, port: int) -> set[str]:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]
        rows = [line.split() for line in lines]
        return {f"socket:[{row[9]}]" for row in rows if int(row[2].partition(":")[2], 16) == port}
    return set()
