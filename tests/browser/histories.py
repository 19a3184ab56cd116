"""A collector with a history to look at: several metrics over two weeks, honest and forged."""

import asyncio
import datetime as dt
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from factories import make_metric, make_params, make_report, registry_toml
from hubbub.client import Batch, Metric
from hubbub.collector import generate_secret
from hubbub.protocol import BooleanType, EnumType, OrdinalType, Records
from hubbub.simulations import running_collector
from hubbub.storage import MetricVersion, NewBatch, open_store
from service.posting import post, send, wait_until, wait_until_published

TOKEN, _HASH = generate_secret("admin")
DAYS = 14

_EARLIER = make_metric("homepage", params=make_params(k=64))
HOMEPAGE = make_metric("homepage", version=2)
CRASHED = make_metric("crashed_today", metric_type=BooleanType())
ENGINE = make_metric("search_engine", metric_type=EnumType(("alpha", "beta", "gamma", "other")))
LOADING = make_metric("page_load_seconds", metric_type=OrdinalType((0.5, 1.0, 2.0, 5.0)))
FORGED = make_metric("default_download_folder", params=make_params(m=32))
METRICS = (HOMEPAGE, CRASHED, ENGINE, LOADING, FORGED)
_LEVELS = {HOMEPAGE: 2400, CRASHED: 5200, ENGINE: 1500, LOADING: 900, FORGED: 320}
HONEST = int("55" * 16, 16)


@dataclass(frozen=True, slots=True)
class History:
    """A running collector, and what it must show."""

    admin: str  # address of the admin listener
    before: dict[str, int]  # reports of the days before today, by metric
    today: dict[str, int]  # those that came over HTTP, which are shown in hundreds


def config(folder: Path) -> list[str]:
    """Return the options for an admin listener that TOKEN may read."""
    path = folder / "collector.toml"
    path.write_text(
        f'admin_port = 0\npublish_seconds = 0.2\n[admin_tokens.operator]\nsha256 = "{_HASH}"\n',
        encoding="utf-8",
    )
    return ["--config", str(path)]


@contextmanager
def running_history(folder: Path, store: str) -> Iterator[History]:
    """Serve a store with two weeks of reports, and send some today."""
    metrics = folder / "metrics.toml"
    metrics.write_text(registry_toml(*METRICS), encoding="utf-8")
    with ThreadPoolExecutor(1) as elsewhere:  # this thread may have the browser's event loop
        before = elsewhere.submit(lambda: asyncio.run(_remember(store))).result()
    with running_collector(metrics, store, config(folder)) as collector:
        admin = collector.read_admin_url()
        wait_until_published(admin, TOKEN)
        today = _send(collector.url)
        wait_until(lambda: _is_shown(admin, sum(today.values())))
        yield History(admin, before, today)


def _is_shown(admin: str, reports: int) -> bool:
    status = send(admin, "GET", "/status.json", headers={"Authorization": f"Bearer {TOKEN}"}).json
    return bool(status["reports"] == reports and status["stored_at"] == status["published_at"])


async def _remember(url: str) -> dict[str, int]:
    """Store the days before today; return how many reports each metric got."""
    rng = np.random.default_rng(20140814)
    today = dt.datetime.now(dt.UTC).date()
    totals = dict.fromkeys((metric.name for metric in METRICS), 0)
    async with open_store(url, create=True) as store:
        await store.declare([_EARLIER])
        await store.declare(METRICS)
        for ago in range(DAYS, 0, -1):
            day = today - dt.timedelta(days=ago)
            for metric, level in _LEVELS.items():
                weekend = 0.6 if day.weekday() >= 5 else 1.0
                n = int(level * weekend * rng.uniform(0.85, 1.1))
                used = _EARLIER if metric is HOMEPAGE and ago > 9 else metric
                records = _records(used, n, rng)
                key = MetricVersion(used.name, used.version)
                batch = {key: Records(2 + used.params.k // 8, records)}
                await store.append([NewBatch(secrets.token_bytes(16), batch)], day)
                totals[metric.name] += n
    return totals


def _records(metric: Metric, n: int, rng: np.random.Generator) -> bytes:
    bits = rng.random((n, metric.params.k)) < metric.params.p_star
    cohorts = rng.integers(0, metric.params.m, n).astype("<u2")
    rows = np.packbits(bits, axis=1, bitorder="little")
    return np.hstack([cohorts.view(np.uint8).reshape(-1, 2), rows]).tobytes()


def _send(url: str) -> dict[str, int]:
    """Send batches as clients do: good, repeated, unknown and improbable ones."""
    sent = dict.fromkeys((metric.name for metric in METRICS), 0)
    for number, metric in enumerate(METRICS):
        reports = tuple(
            make_report(metric, cohort=i % metric.params.m, bits=HONEST % 2**metric.params.k)
            for i in range(20 + 7 * number)
        )
        for _ in range(3):
            assert post(url, Batch(reports)).status == 201
            sent[metric.name] += len(reports)
    again = Batch((make_report(HOMEPAGE, cohort=7, bits=HONEST),))
    assert [post(url, again).status for _ in range(3)] == [201, 200, 200]
    forged = tuple(make_report(FORGED, cohort=5, bits=2**128 - 1) for _ in range(4))
    assert post(url, Batch(forged)).status == 201
    sent[HOMEPAGE.name] += 1
    sent[FORGED.name] += 4
    assert post(url, Batch((make_report(make_metric("unheard_of")),))).status == 422
    assert post(url, b"not json").status == 400
    return sent
