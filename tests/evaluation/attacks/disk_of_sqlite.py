"""Read from the files of an SQLite store in which order batches came, and what came together.

Every byte is looked at, the log and free pages included, and so is every byte of a backup and of an
export (docs/understand/operator.md).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from evaluation.attacks.arrival import MOST_NEIGHBOURS, Arrived, export, most_neighbours
from evaluation.attacks.outcome import Outcome
from hubbub.storage import backup_store


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Count neighbours of arrival that lie side by side, today and once the day is over."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hubbub.db")
        arrived = Arrived(300 if quick else 600)
        url = f"sqlite:///{path}"
        asyncio.run(arrived.store(url))
        n_ids, n_reports = len(arrived.ids), len(arrived.reports)
        today = most_neighbours([path], arrived.ids, 1)
        yield Outcome(f"today: ids beside the next one that came, of {n_ids}", today, n_ids)
        asyncio.run(arrived.end_day(url))
        asyncio.run(backup_store(url, path.with_name(f"{path.name}.backup")))
        path.with_name(f"{path.name}.export").write_bytes(asyncio.run(export(url)))
        files = sorted(path.parent.glob(f"{path.name}*"))
        for what, wanted, apart in (
            (f"a day that is over: the same of {n_ids} ids", arrived.ids, 1),
            (f"reports beside one of their batch, of {n_reports}", arrived.reports, 0),
        ):
            yield Outcome(what, most_neighbours(files, wanted, apart), MOST_NEIGHBOURS)
