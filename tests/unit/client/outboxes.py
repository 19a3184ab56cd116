"""Outboxes on real files, and readers of what is in their batches."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from factories import make_metric, make_registry, make_report, make_secret
from hubbub.client.outbox import LeasedBatch, Outbox, spool
from hubbub.client.storage import Storage
from hubbub.protocol.metric_types.enums import EnumType

SECRET = make_secret()
REGISTRY = make_registry(
    make_metric(),
    make_metric("search"),
    make_metric("mood", period_days=7),
    # Two bytes of bits, because tests number their reports beyond 255.
    make_metric("theme", metric_type=EnumType(tuple(f"theme {i}" for i in range(9)))),
)
LEASE_SECONDS = 45.0
MAX_AGE = 13 * 86_400.0


def open_storage(folder: Path) -> Storage:
    """Open a database as the client does, but don't wait until it could survive a power cut."""
    storage = Storage(folder, create=True)
    with storage.transaction() as connection:
        storage.claim(SECRET, connection)
    storage._connection.execute("PRAGMA synchronous = OFF")
    return storage


@contextmanager
def opened(folder: Path, max_bytes: int = 2**20) -> Iterator[Outbox]:
    with (
        closing(open_storage(folder)) as storage,
        closing(Outbox(storage, SECRET, max_bytes, MAX_AGE, LEASE_SECONDS)) as outbox,
    ):
        yield outbox


def put(folder: Path, *numbers: int, metric: str = "homepage") -> None:
    """Spool reports that bear these numbers in place of noise."""
    reports = [make_report(REGISTRY[metric], bits=number) for number in numbers]
    with closing(open_storage(folder)) as storage, storage.transaction() as connection:
        spool(connection, reports, REGISTRY)


def execute(folder: Path, statement: str) -> None:
    """Do to the database what a failing disk, or time, might do."""
    with closing(open_storage(folder)) as storage, storage.transaction() as connection:
        connection.execute(statement)


def numbers_in(body: bytes) -> list[int]:
    bits = (base64.b64decode(report["bits"]) for report in json.loads(body)["reports"])
    return [int.from_bytes(raw, "little") for raw in bits]


def numbers_on_disk(folder: Path) -> list[int]:
    """Return the numbers of all reports in pieces and batches, damaged or not."""
    with closing(open_storage(folder)) as storage, storage.transaction() as connection:
        pieces = connection.execute("SELECT body FROM spool").fetchall()
        batches = connection.execute("SELECT body FROM batches").fetchall()
    bodies = [*(b'{"reports":[%s]}' % piece for (piece,) in pieces), *(body for (body,) in batches)]
    return [number for body in bodies for number in numbers_in(body)]


def id_in(body: bytes) -> str:
    return str(json.loads(body)["batch_id"])


def must_hold(outbox: Outbox, now: float = 0.0) -> LeasedBatch:
    batch = outbox.lease_oldest(now)
    assert batch is not None, "nothing to hold"
    return batch


_HOLD = """
import sys
from pathlib import Path
from hubbub.client.outbox import Outbox
from hubbub.client.storage import Storage

folder, seconds, now = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
outbox = Outbox(Storage(folder), bytes.fromhex(sys.argv[4]), 2**20, 1e9, seconds)
print(outbox.lease_oldest(now).key, flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process_holds(folder: Path, now: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """Let a real process take the oldest batch and live until the context closes."""
    command = [sys.executable, "-c", _HOLD, str(folder), str(LEASE_SECONDS), str(now), SECRET.hex()]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip().isdecimal()
            yield process
        finally:
            process.kill()
