"""Small stores for tests of the command line."""

import asyncio
import datetime as dt
from pathlib import Path

import numpy as np

from factories import make_metric, make_params
from hubbub.decoder.options import MIN_REPORTS
from hubbub.protocol import Records
from hubbub.storage import MetricVersion, NewBatch, open_store
from unit.collector.forgeries import records_of

DAY = dt.date(2026, 11, 1)


def filled_store(folder: Path, records: Records, day: dt.date = DAY) -> str:
    """Return the address of a new store with these reports of homepage."""
    metric, url = make_metric(), f"sqlite:///{folder}/hubbub.db"
    key = MetricVersion(metric.name, metric.version)

    async def fill() -> None:
        async with open_store(url, create=True) as store:
            await store.declare([metric])
            await store.append([NewBatch(bytes(16), {key: records})], day)

    asyncio.run(fill())
    return url


def plausible_records(n: int = MIN_REPORTS) -> Records:
    """Return reports with as many ones as pure noise has; by default just enough to be decoded."""
    rng = np.random.default_rng(11)
    return records_of(rng.random((n, 128)) < make_params().p_star, rng.integers(64, size=n))
