"""A month of an app whose release breaks one platform, and the standing report that shows it.

Reports are drawn as clients draw them, and stored under the days on which they would have arrived,
because a real collector knows only today. All else is what an operator has: a decode.toml, the
command that reads it, and the folder that it fills.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray
from hubbub.protocol.metrics import Metric
from hubbub.protocol.records import Records, record_width
from hubbub.protocol.registry import Registry
from hubbub.simulations.experiments.processes import run_decoder, start_afresh
from hubbub.simulations.populations import domain_names, family_shares
from hubbub.simulations.simulated_clients.clients import SimulatedClients, as_records
from hubbub.storage import MetricVersion, NewBatch, open_store

DAYS = 28
_DAYS_BEFORE = (5, 7)
"""Five of seven days are before the release: a month has eight to see what it did."""
HIJACKER = "search-redirect.example"
_CRASHED = {"before": 0.02, "after": 0.08}
_HIJACKED = 0.05
"""Of clients on the broken platform, from the release on."""
_HOMEPAGES = 120
PLATFORMS = {"windows": 0.6, "mac": 0.25, "linux": 0.15}
BROKEN = "mac"
METRICS = """\
application = "org.example.browser"

[dimensions]
platform = ["windows", "mac", "linux"]

[metrics.crashed]
version = 1
type = "boolean"
description = "Whether the browser crashed today"
owner = "stability@example.org"
expires = 2099-12-31
dimensions = ["platform"]
mode = "once"
period_days = 1
max_periods = 30
f = 0.0
p = 0.25
q = 0.75

[metrics.homepage]
version = 1
type = "string"
description = "The host name of the page that opens first"
owner = "security@example.org"
expires = 2099-12-31
mode = "once"
period_days = 1
max_periods = 30
k = 64
h = 2
m = 32
f = 0.0
p = 0.1
q = 0.7
"""
DECODE = """\
# Everything that the standing report needs; `hubbub-decoder watch decode.toml` keeps it up to date.
metrics = "metrics.toml"
store = "{store}"
output = "results"
at = "00:00"
catch_up = {days}

[reports.crashed]
split = "platform"

[reports.homepage]
days = 7
candidates = "homepages.txt"
method = "regression"  # a quarter of the time
"""

Progress = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]


def run_watched_release(
    folder: Path,
    reports_a_day: int,
    last: dt.date,
    seed: int,
    progress: Progress,
    *,
    days: int = DAYS,
) -> None:
    """Fill a store with days and let the standing report catch up with them.

    `folder`: exists; gets metrics.toml, decode.toml, homepages.txt, hubbub.db and results/.
    `reports_a_day`: of each metric. `last`: the last day. `progress`: opens a progress bar of that
    label. Raises `ProcessError` if the command fails. Raises `FolderError` if the folder has files
    of somebody else.
    """
    start_afresh(folder, ("hubbub.db*", "results/**/*.*"))
    store = f"sqlite:///{(folder / 'hubbub.db').resolve()}"
    hosts = [*domain_names().values[: _HOMEPAGES - 1], HIJACKER]
    never = [f"page-{number}.example" for number in range(_HOMEPAGES)]
    for name, text in (
        ("metrics.toml", METRICS),
        ("decode.toml", DECODE.format(store=store, days=days)),
        ("homepages.txt", "\n".join([*hosts, *never]) + "\n"),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    registry = Registry.load(folder / "metrics.toml")
    with progress(f"{days} days of reports") as update:
        asyncio.run(_fill(store, registry, hosts, reports_a_day, last, days, seed, update))
    arguments = ["watch", str(folder / "decode.toml"), "--once", "--until", f"{last}"]
    run_decoder(arguments, shown=True, accepted=(0, 3))


async def _fill(
    store_url: str,
    registry: Registry,
    hosts: list[str],
    reports_a_day: int,
    last: dt.date,
    days: int,
    seed: int,
    update: Callable[[int, int], None],
) -> None:
    """Append each day's reports under its day."""
    rng = np.random.Generator(np.random.SFC64(seed))
    crashed, homepage = registry["crashed"], registry["homepage"]
    crashes = SimulatedClients([False, True], crashed.params, rng, crashed.type)
    homepages = SimulatedClients(hosts, homepage.params, rng)
    async with open_store(store_url, create=True) as store:
        await store.declare(registry.values())
        for number in range(days):
            released = number >= days * _DAYS_BEFORE[0] // _DAYS_BEFORE[1]
            batch: dict[MetricVersion, Records] = {}
            for platform, part in PLATFORMS.items():
                share = _CRASHED["after" if released and platform == BROKEN else "before"]
                held = (rng.random(round(reports_a_day * part)) < share).astype(np.int64)
                batch |= _records(crashed, crashes, held, f"platform={platform}")
            hijacked = _HIJACKED * PLATFORMS[BROKEN] if released else 0.0
            shares = _with_hijacker(len(hosts), hijacked)
            held = rng.choice(len(hosts), size=reports_a_day, p=shares)
            batch |= _records(homepage, homepages, held, "")
            day = last - dt.timedelta(days=days - 1 - number)
            await store.append([NewBatch(secrets.token_bytes(16), batch)], day)
            update(number + 1, days)


def _with_hijacker(n_hosts: int, hijacked: float) -> FloatArray:
    shares = family_shares("zipf:1.2", n_hosts - 1) * (1 - hijacked)
    return np.append(shares, hijacked)


def _records(
    metric: Metric, clients: SimulatedClients, held: IntArray, told: str
) -> dict[MetricVersion, Records]:
    key = MetricVersion(metric.name, metric.version)._replace(slice=told)
    records = as_records(*clients.report(held))
    return {key: Records(record_width(metric.params.k), records)}
