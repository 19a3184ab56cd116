"""Outboxes on real files, and readers of what is in their batches."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from factories import make_metric, make_registry, make_report, make_secret
from hubbub.client import Registry
from hubbub.client.outbox import DATABASE, LeasedBatch, Outbox, spool
from hubbub.client.state import open_state
from hubbub.protocol import EnumType

SECRET = make_secret()
REGISTRY = make_registry(
    make_metric(),
    make_metric("search"),
    make_metric("mood", period_days=7),
    # Two bytes of bits, because tests number their reports beyond 255.
    make_metric("theme", metric_type=EnumType(tuple(f"theme {i}" for i in range(9)))),
    make_metric("theme-2", metric_type=EnumType(tuple(f"theme {i}" for i in range(9)))),
)
ORIGIN = "http://127.0.0.1:9"
LEASE_SECONDS = 45.0
MAX_AGE = 13 * 86_400.0


@contextmanager
def opened(folder: Path, max_bytes: int = 2**20, *, origin: str = ORIGIN) -> Iterator[Outbox]:
    """Open a client's outbox, but don't wait until what it stores could survive a power cut."""
    if not (folder / DATABASE).exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.urandom", lambda n: SECRET[:n])
            open_state(folder, REGISTRY)
    outbox = Outbox(
        folder,
        REGISTRY.application,
        SECRET,
        origin=origin,
        max_bytes=max_bytes,
        lease_seconds=LEASE_SECONDS,
    )
    with closing(outbox):
        outbox.connection.execute("PRAGMA synchronous = OFF")
        yield outbox


def put(
    folder: Path,
    *numbers: int,
    metric: str = "homepage",
    now: float = 0.0,
    origin: str = ORIGIN,
    registry: Registry = REGISTRY,
    slice_: str = "",
) -> None:
    """Spool reports that bear these numbers in place of noise."""
    reports = [
        make_report(registry[metric], bits=number)._replace(slice=slice_) for number in numbers
    ]
    with opened(folder) as outbox, outbox.transaction() as connection:
        spool(connection, reports, registry, origin, now)


def execute(folder: Path, statement: str) -> None:
    """Do to the database what a failing disk, or time, might do."""
    with opened(folder) as outbox, outbox.transaction() as connection:
        connection.execute(statement)


def numbers_in(leased: LeasedBatch) -> list[int]:
    return [int.from_bytes(report.bits, "little") for report in leased.batch.reports]


def numbers_on_disk(folder: Path) -> list[int]:
    """Return the numbers of all reports, damaged or not."""
    query = "SELECT record FROM reports"
    with opened(folder) as outbox, outbox.transaction() as connection:
        return [int.from_bytes(record[2:], "little") for (record,) in connection.execute(query)]


def lease(outbox: Outbox, now: float = 0.0, most: int = 100) -> LeasedBatch | None:
    """Lease a batch, of reports that are in none yet if there is no other."""
    return outbox.lease(now, 1, most)


def must_hold(outbox: Outbox, now: float = 0.0, most: int = 100) -> LeasedBatch:
    batch = lease(outbox, now, most)
    assert batch is not None, "nothing to hold"
    return batch


def make_batches(outbox: Outbox, most: int, now: float = 0.0) -> None:
    """Put all reports into batches, as a process does that begins to send and is interrupted."""
    if leased := lease(outbox, now, most):
        outbox.settle(leased)


def remove(outbox: Outbox, leased: LeasedBatch) -> None:
    """Settle all reports of a batch."""
    outbox.settle(leased, range(leased.reports))


def id_in(leased: LeasedBatch) -> str:
    return leased.batch.batch_id


_HOLD = """
import sys
from pathlib import Path
from hubbub.client.outbox import Outbox

folder, seconds, now = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
secret = bytes.fromhex(sys.argv[4])
outbox = Outbox(folder, sys.argv[5], secret, origin=sys.argv[6], lease_seconds=seconds)
print(outbox.lease(now, 1, 100).key, flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process_holds(folder: Path, now: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """Let a real process take the oldest batch and live until the context closes."""
    times = [str(LEASE_SECONDS), str(now)]
    whose = [SECRET.hex(), REGISTRY.application, ORIGIN]
    command = [sys.executable, "-c", _HOLD, str(folder), *times, *whose]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip().isdecimal()
            yield process
        finally:
            process.kill()
