"""A store of two weeks of simulated reports, so that the notebook has something to decode.

On the ninth day a home page that nobody chose takes over from others. Reports have the exact
probabilities of real clients' that report once in their life.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np

from hubbub.protocol import Metric, Records, Registry, record_width
from hubbub.storage import MetricVersion, NewBatch, open_store

FIRST = dt.date(2026, 11, 1)
DAYS, CHANGE = 14, 8
CLIENTS = 10_000
REGISTRY = Path(__file__).parent / "metrics.toml"
PAGES = ("news.example.org", "mail.example.com", "search.example.net", "hijacked.example")
SHARES = {
    "homepage": (dict(zip(PAGES, (0.4, 0.3, 0.2, 0.1), strict=True)), (0.35, 0.25, 0.15, 0.25)),
    "theme": ({"light": 0.5, "dark": 0.3, "system": 0.2}, (0.4, 0.4, 0.2)),
}
"""Each metric's values with their shares, and the shares after the change."""


def simulated_reports(
    metric: Metric, values: list[str], shares: tuple[float, ...], rng: np.random.Generator
) -> Records:
    """Return a day's reports of `CLIENTS` people."""
    params = metric.params
    filters = np.array(
        [
            [
                np.unpackbits(
                    np.frombuffer(
                        metric.type.bits(value, cohort, params).to_bytes(params.k // 8, "little"),
                        np.uint8,
                    ),
                    bitorder="little",
                )
                for cohort in range(params.m)
            ]
            for value in values
        ]
    )
    held = rng.choice(len(values), CLIENTS, p=shares)
    cohorts = rng.integers(params.m, size=CLIENTS)
    chances = np.where(filters[held, cohorts] == 1, params.q_star, params.p_star)
    bits = np.packbits(rng.random(chances.shape) < chances, axis=1, bitorder="little")
    columns = [cohorts.astype("<u2")[:, None].view(np.uint8), bits]
    return Records(record_width(params.k), np.hstack(columns).tobytes())


async def fill(url: str) -> None:
    """Make the store."""
    rng = np.random.default_rng(20141103)
    registry = Registry.load(REGISTRY)
    async with open_store(url, create=True) as store:
        await store.declare([registry[name] for name in SHARES])
        for day in range(DAYS):
            batch = {}
            for name, (before, after) in SHARES.items():
                shares = tuple(before.values()) if day < CHANGE else after
                records = simulated_reports(registry[name], list(before), shares, rng)
                batch[MetricVersion(name, registry[name].version)] = records
            await store.append([NewBatch(rng.bytes(16), batch)], FIRST + dt.timedelta(days=day))
