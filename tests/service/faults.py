"""Faults to inflict on running collectors, and looks at their processes from outside (Linux)."""

import contextlib
import http.client
import os
import re
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

from hubbub.simulations import Collector
from service.posting import Answer, send

_WORKER = b"import work"  # how the supervisor starts a fresh interpreter


def workers_of(collector: Collector) -> list[int]:
    return [pid for pid in _children(collector.process.pid) if _WORKER in _command(pid)]


def processes_of(collector: Collector) -> list[int]:
    return [collector.process.pid, *workers_of(collector)]


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped doesn't."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


def kill(*pids: int) -> None:
    """Kill processes as the kernel does when memory runs out."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def resident_bytes(*pids: int) -> int:
    """Return the memory that processes occupy together."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) for pid in pids]
    return sum(pages) * resource.getpagesize()


def cpu_seconds(pid: int) -> float:
    """Return the time that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reset_peak(pid: int) -> int:
    """Begin to measure the peak of a process's memory anew; return what it occupies now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")
    return resident_bytes(pid)


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process has occupied at once."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found
    return 1024 * int(found[1])


@contextlib.contextmanager
def errors_kept_in(path: Path) -> Iterator[None]:
    """Let programs that start in the context write standard error to a file that may be read.

    What pytest captures is emptied when it is read, and with it what is written at that moment.
    """
    usual = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(usual, 2)
        os.close(usual)


@contextlib.contextmanager
def full_disk(collector: Collector) -> Iterator[None]:
    """Let the system refuse all that a collector's processes write to files beyond a first page."""
    usual = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in processes_of(collector)}
    for pid, (_, hard) in usual.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        for pid, limits in usual.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def status_of(collector: Collector, path: str) -> int:
    """Return the status that a probe gets; one that a killed worker had taken is sent again."""
    while True:
        with contextlib.suppress(ConnectionResetError):
            return send(collector.url, "GET", path).status


def read_answer(connection: socket.socket) -> Answer:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return Answer(response.status, response.headers, response.read())


def _children(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                parents[int(entry.name)] = int(stat[1])
    return [child for child, parent in parents.items() if parent == pid]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
