"""Tell from the times of one's own answers when somebody else has sent a batch.

A collector has nothing else to do. Somebody sends a batch now and then; a stranger sends all the
time, in one of several ways, and looks how long his answers take around each moment. That of a
batch is compared with moments at which nobody sent anything: the chance that he tells the one from
the other (the area under the curve) is one half if he learns nothing.
"""

from __future__ import annotations

import asyncio
import math
import random
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from scipy import stats

from evaluation.attacks.outcome import Outcome
from evaluation.loadtest.sender import Connection, requests_of
from factories import registry_toml
from hubbub.simulations import running_collector

_APART = 0.25
"""Seconds between two moments, so that what is seen of one isn't seen of the next."""

_SEEN = 0.08
"""Seconds after a moment for which answers are looked at."""

_CONNECTIONS = 15
_FEATURES: dict[str, Callable[[Sequence[float]], float]] = {"longest": max, "mean": fmean}


class _Answer(NamedTuple):
    sent: float
    seconds: float


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Measure the best of what a stranger sees, for each way in which he may send."""
    moments = 2 * (60 if quick else 250)
    bound = 0.5 + _deviations(moments // 2)
    ways = {
        "one batch after the other": (1, requests_of(1)),
        f"{_CONNECTIONS} batches at once": (_CONNECTIONS, requests_of(1)),
    }
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder, "metrics.toml")
        metrics.write_text(registry_toml(), encoding="utf-8")
        options = ["--upkeep-seconds", "86400"]
        with running_collector(metrics, Path(folder, "hubbub.db"), options) as collector:
            for way, (connections, bodies) in ways.items():
                told = asyncio.run(_listen(collector.url, connections, bodies, moments))
                yield Outcome(f"{way}: chance to tell another's from none", told, bound)


def _deviations(number: int) -> float:
    deviation = math.sqrt((2 * number + 1) / (12 * number**2))
    return float(stats.norm.isf(0.25e-9)) * deviation


async def _listen(url: str, connections: int, bodies: Iterator[bytes], moments: int) -> float:
    """Return how well moments at which another sent are told from those at which nobody did."""
    answers: list[_Answer] = []
    sent: dict[bool, list[float]] = {True: [], False: []}
    is_over = asyncio.Event()

    async def stranger() -> None:
        async with Connection.open(url) as connection:
            while not is_over.is_set():
                begun = time.perf_counter()
                assert await connection.post(next(bodies)) == "201"
                answers.append(_Answer(begun, time.perf_counter() - begun))

    async def other() -> None:
        chance = random.Random(29)  # noqa: S311
        kinds = [True, False] * (moments // 2)
        chance.shuffle(kinds)
        own = requests_of(1)
        async with Connection.open(url) as connection:
            for does_send in kinds:
                await asyncio.sleep(_APART * chance.uniform(0.7, 1.3))
                sent[does_send].append(time.perf_counter())
                if does_send:
                    assert await connection.post(next(own)) == "201"
        is_over.set()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(connections):
            tasks.create_task(stranger())
        tasks.create_task(other())
    answers.sort()
    begins = [answer.sent for answer in answers]
    best = 0.5
    for feature in _FEATURES.values():
        seen = {
            kind: [feature(_around(answers, begins, at)) for at in times]
            for kind, times in sent.items()
        }
        u = stats.mannwhitneyu(seen[True], seen[False]).statistic
        area = float(u) / (len(seen[True]) * len(seen[False]))
        best = max(best, area, 1 - area)
    return best


def _around(answers: Sequence[_Answer], begins: Sequence[float], at: float) -> list[float]:
    first = max(0, bisect_left(begins, at) - _CONNECTIONS)
    found = answers[first : bisect_right(begins, at + _SEEN)]
    return [answer.seconds for answer in found if answer.sent + answer.seconds > at]
