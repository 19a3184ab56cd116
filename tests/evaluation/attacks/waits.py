"""Make an app wait for its telemetry: a fork beside a disk that hangs, an end without a network.

The disk hangs inside SQLite's own code, as it does when a file system doesn't answer: SQLite calls
a function of ours every few instructions, which sleeps.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from evaluation.attacks.outcome import Outcome
from service.apps import App

_HANGING_DISK = """
import hubbub.client.outbox as storage

def hang():
    held.set()
    time.sleep(float(os.environ.get("HANG", 30)))

def connect(path, patience, opened=storage._connect):
    connection = opened(path, patience)
    if threading.current_thread().name == "hubbub disk":
        connection.set_progress_handler(hang, 1)
    return connection

held = threading.Event()
telemetry = open_telemetry()
storage._connect = connect
record(telemetry, 1)
held.wait(60)
"""
_FORK = (
    _HANGING_DISK
    + """
times = []
for _ in range(2):
    started = time.monotonic()
    child = os.fork()
    if not child:
        record(telemetry, 1)
        telemetry.set_consent(False)
        telemetry.set_consent(True)
        telemetry.close()
        os._exit(telemetry.status().disabled is None)
    times.append(time.monotonic() - started)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit("the child's telemetry is on")
print(*times)
sys.stdout.flush()
os._exit(0)
"""
)
_EXIT = """
telemetry = open_telemetry()
record(telemetry, 3)
print(time.monotonic(), flush=True)
"""
_NOBODY = "http://127.0.0.1:9"


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Measure how long an app waits, in seconds."""
    first, second = _forks()
    # Five seconds are promised; the rest is a busy machine's.
    yield Outcome("seconds of a fork while a disk hangs for 30", first, 5.5)
    yield Outcome("seconds of the next one", second, 0.5)
    ends = [_end() for _ in range(1 if quick else 5)]
    yield Outcome("seconds of an exit while the collector refuses connections", min(ends), 1.0)


def _forks() -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        ended = App(Path(folder), _NOBODY).run(_FORK)
    return [float(seconds) for seconds in ended.output[0].split()]


def _end() -> float:
    with tempfile.TemporaryDirectory() as folder:
        app = App(Path(folder), _NOBODY)
        started = time.monotonic()
        ended = app.run(_EXIT)
        assert time.monotonic() - started < 60
        return ended.farewell_seconds
