"""Batches that came in a known order, and how much an order of places tells of it.

What is looked for has a number, that of its batch. An artefact shows the numbers in another order:
by place in a file, by number of transaction, by what is logged.
"""

from __future__ import annotations

import datetime as dt
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from factories import make_metric
from hubbub.protocol import Records
from hubbub.storage import Maintenance, MetricVersion, NewBatch, Store, open_store
from unit.collector.exchanges import segments_of

MOST_NEIGHBOURS = 16
"""By chance there are two; more than 16 with probability below 1e-9 (Poisson)."""

_KEY = MetricVersion("homepage", 1)
_RECORD, _REPORTS = 18, 3
_TODAY = dt.date(2026, 3, 14)
_TOMORROW = _TODAY + dt.timedelta(days=1)
_BETWEEN_UPKEEP = 40


class Arrived:
    """Batches of a day: random reports, which are found wherever they are.

    number: How many there are.
    ids, reports: What came, and the number of its batch.
    """

    def __init__(self, number: int) -> None:
        self._batches: list[NewBatch] = []
        self.ids: dict[bytes, int] = {}
        self.reports: dict[bytes, int] = {}
        for each in range(number):
            batch_id, data = secrets.token_bytes(16), secrets.token_bytes(_RECORD * _REPORTS)
            self._batches.append(NewBatch(batch_id, {_KEY: Records(_RECORD, data)}))
            self.ids[batch_id] = each
            self.reports |= {data[i : i + _RECORD]: each for i in range(0, len(data), _RECORD)}

    async def store(self, url: str, between: Callable[[], object] = lambda: None) -> None:
        """Store each batch by itself, as in a quiet hour, with upkeep in between and at the end.

        between: Called some batches before each upkeep.
        """
        async with open_store(url, create=True) as store:
            await store.declare([make_metric()])
            for number, batch in enumerate(self._batches, start=1):
                await store.append([batch], _TODAY)
                if number % _BETWEEN_UPKEEP == _BETWEEN_UPKEEP - 5:
                    between()
                if number % _BETWEEN_UPKEEP == 0 or number == len(self._batches):
                    await _upkeep(store, _TODAY)

    async def end_day(self, url: str) -> None:
        """Do the first upkeep of the day after, though nothing new has come; send all again."""
        async with open_store(url, create=True) as store:
            await _upkeep(store, _TOMORROW)
            assert await store.append(self._batches, _TOMORROW) == [False] * len(self._batches)


async def export(url: str) -> bytes:
    """Return what the admin listener sends of the day's reports, in that order."""
    async with open_store(url, create=False) as store:
        return b"".join(await segments_of(store, _KEY))


async def _upkeep(store: Store, day: dt.date) -> None:
    done = await Maintenance(store, 14, None, 1e9).run_once(day)
    assert done.faults == {}


def neighbours(numbers: Sequence[int], apart: int = 1) -> int:
    """Return how often two whose numbers are so far apart are side by side."""
    return int((np.abs(np.diff(numbers)) == apart).sum())


def order_kept(numbers: Sequence[int]) -> float:
    """Return Kendall's tau of place and arrival, without its sign: 1 if all order is kept."""
    places = np.asarray(numbers)
    if len(places) < 2:
        return 0.0
    later = np.triu(np.sign(places[None, :] - places[:, None]))
    return abs(float(later.sum())) / (len(places) * (len(places) - 1) / 2)


def order_by_chance(number: int) -> float:
    """Return what `order_kept` of so many exceeds with probability 1e-9 by chance (normal)."""
    deviation = math.sqrt(2 * (2 * number + 5) / (9 * number * (number - 1)))
    return float(stats.norm.isf(0.5e-9)) * deviation


def most_neighbours(paths: Iterable[Path], numbers: Mapping[bytes, int], apart: int) -> int:
    """Return how many neighbours of what is looked for the file has that has most of them.

    apart: As of `neighbours`.
    """
    most = 0
    for path in paths:
        content = path.read_bytes()
        places = sorted((place, n) for each, n in numbers.items() for place in _at(content, each))
        most = max(most, neighbours([number for _, number in places], apart))
    return most


def _at(content: bytes, wanted: bytes) -> Iterator[int]:
    place = content.find(wanted)
    while place >= 0:
        yield place
        place = content.find(wanted, place + 1)
