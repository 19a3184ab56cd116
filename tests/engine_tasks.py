"""Tasks for engines whose workers are other processes: what they do is theirs to import."""

import datetime as dt
import os
import signal
from pathlib import Path

import numpy as np

from factories import make_metric
from hubbub.protocol import RapporParams, Records, record_width
from hubbub.storage import Partition, write_day

DAYS = ("2026-11-01", "2026-11-02", "2026-11-03")


def write_export(folder: Path, params: RapporParams, reports: int = 30_000) -> str:
    """Write three days of random reports, several row groups each; return the store's address."""
    rng = np.random.default_rng(7)
    width, definition = record_width(params.k), make_metric(params=params).definition
    for day in DAYS:
        rows = rng.integers(0, 256, (reports, width), dtype=np.uint8)
        rows[:, :2] = rng.integers(0, params.m, reports, dtype=np.uint16)[:, None].view(np.uint8)
        parts = (Records(width, part.tobytes()) for part in np.array_split(rows, 4))
        partition = Partition("homepage", 1, dt.date.fromisoformat(day))
        write_day(folder, partition, definition, {"": parts}, {})
    return f"parquet:{folder}"


def scaled(factor: int, task: int) -> int:
    return factor * task


def megabytes(count: int, _task: int) -> bytes:
    """Return an answer that takes a while to come."""
    return bytes(count * 10**6)


def refuse_three(_shared: None, task: int) -> int:
    if task == 3:
        raise ValueError("three")
    return task


def die_once(flag: Path, task: int) -> int:
    """Kill this worker, the first time that it comes to the fifth task."""
    if task == 5 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def die(_shared: None, _task: int) -> int:
    """Kill this worker."""
    os.kill(os.getpid(), signal.SIGKILL)
    return 0
