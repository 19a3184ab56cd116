"""Two services to watch: one whose report sharpens as it runs, and a month that is over.

`try` collects and decodes what the demonstration has, but in rounds, until somebody stops it.
`watch` shows an app whose release breaks one platform: its reports are drawn as clients draw them,
and stored under the days on which they would have arrived, because a real collector knows only
today. All else is what an operator has: a decode.toml, the command that reads it, and the folder
that it fills.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hubbub.collector import generate_secret
from hubbub.decoder import decode_metric
from hubbub.inference import IntArray
from hubbub.protocol import Metric, Records, Registry, record_width
from hubbub.reporting import Estimates, atomic_write, write_html
from hubbub.simulations.clients import SimulatedClients, as_records
from hubbub.simulations.collecting import (
    ProcessError,
    UploadError,
    report_through_clients,
    running_collector,
    start_afresh,
    upload_reports,
)
from hubbub.simulations.demo import METRICS, Progress
from hubbub.simulations.populations import census_first_names, domain_names, family_shares
from hubbub.storage import MetricVersion, NewBatch, open_store

METRIC = "first_name"
_APPS = 20
"""Real clients in a round, each an app with a state of its own; the other reports are simulated."""
_ADMIN = "admin_port = 0\npublish_seconds = 1\n[admin_tokens.try]\nsha256 = "
_REFRESH = b'<head>\n<meta http-equiv="refresh" content="3">'


def run_quickstart(
    folder: Path, reports_a_round: int, seconds: float, show: Callable[[str], None]
) -> Estimates | None:
    """Collect and decode in rounds, until SIGINT, SIGTERM or the time is over.

    The folder gets metrics.toml, hubbub.db, names.txt and report.html, which reloads itself.
    Returns the last round, if there was one.
    """
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    start_afresh(folder)
    token, hashed = generate_secret("admin")
    (folder / "collector.toml").write_text(f'{_ADMIN}"{hashed}"\n', encoding="utf-8")
    (folder / "metrics.toml").write_text(METRICS, encoding="utf-8")
    population, rng = census_first_names(), np.random.default_rng()
    names = population.values
    (folder / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    registry = Registry.load(folder / "metrics.toml")
    metric, shares = registry[METRIC], dict(zip(names, population.shares.tolist(), strict=True))
    simulated = SimulatedClients(names, metric.params, rng)
    options = ["--log-level", "warning", "--config", str(folder / "collector.toml")]
    found = None
    with running_collector(folder / "metrics.toml", folder / "hubbub.db", options) as collector:
        show(f"collector    {collector.url}")
        admin = collector.read_admin_url()
        show(f"admin page   {admin}  (any user name; the password is {token})")
        show(f"report       {folder / 'report.html'}  (it reloads itself)\n")
        ends, collected = time.monotonic() + seconds, 0
        while not stopped.is_set() and time.monotonic() < ends:
            held = rng.choice(len(names), size=reports_a_round, p=population.shares)
            apps = [names[i] for i in held[:_APPS]]
            try:
                report_through_clients(registry, METRIC, apps, collector.url, _unseen)
                cohorts, bits = simulated.report(held[_APPS:])
                asyncio.run(upload_reports(metric, cohorts, bits, collector.url, _unseen))
            except UploadError:
                if stopped.is_set():  # the terminal's Ctrl-C is the collector's as well
                    break
                raise
            collected += reports_a_round
            found = decode_metric(
                METRIC, metrics=folder / "metrics.toml", store=f"sqlite:///{folder}/hubbub.db",
                candidates=names, min_reports=1, detected_only=True,
            )  # fmt: skip
            atomic_write(folder / "report.html", partial(_write_page, found))
            show(_progress(found, shares, collected))
    return found


def _unseen(_done: int, _total: int) -> None:
    """Show no bar: a round takes seconds."""


def _write_page(found: Estimates, file: BinaryIO) -> None:
    page = BytesIO()
    write_html(found, page)
    file.write(page.getvalue().replace(b"<head>", _REFRESH, 1))


def _progress(found: Estimates, shares: dict[str, float], collected: int) -> str:
    """Return a round's line: how many names are found, and the commonest with its truth."""
    rows = sorted(range(len(found["string"])), key=lambda row: -float(found["proportion"][row]))
    line = f"{collected:>9,} reports: {len(rows):>3} names found"
    if not rows:
        return line
    first = rows[0]
    name, share = found["string"][first], float(found["proportion"][first])
    error = (float(found["prop_high"][first]) - float(found["prop_low"][first])) / 2
    return f"{line}; {name} {share:.2%} ± {error:.2%} (truth {shares[name]:.2%})"


DAYS = 28
_DAYS_BEFORE = (5, 7)
"""Five of seven days are before the release: a month has eight to see what it did."""
HIJACKER = "search-redirect.example"
_CRASHED = {"before": 0.02, "after": 0.08}
_HIJACKED = 0.05
"""Part of the clients on the broken platform, from the release on."""
_HOMEPAGES = 120
PLATFORMS = {"windows": 0.6, "mac": 0.25, "linux": 0.15}
BROKEN = "mac"
_BROWSER_METRICS = """\
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

    The folder gets metrics.toml, decode.toml, homepages.txt, hubbub.db and results/.
    """
    start_afresh(folder, ("hubbub.db*", "results/**/*.*"))
    store = f"sqlite:///{(folder / 'hubbub.db').resolve()}"
    hosts = [*domain_names().values[: _HOMEPAGES - 1], HIJACKER]
    never = [f"page-{number}.example" for number in range(_HOMEPAGES)]
    for name, text in (
        ("metrics.toml", _BROWSER_METRICS),
        ("decode.toml", DECODE.format(store=store, days=days)),
        ("homepages.txt", "\n".join([*hosts, *never]) + "\n"),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    registry = Registry.load(folder / "metrics.toml")
    with progress(f"{days} days of reports") as update:
        asyncio.run(_fill(store, registry, hosts, reports_a_day, last, days, seed, update))
    arguments = ["watch", str(folder / "decode.toml"), "--once", "--until", f"{last}"]
    command = [sys.executable, "-m", "hubbub.decoder", *arguments]
    code = subprocess.run(command, check=False).returncode  # noqa: S603
    if code not in {0, 3}:  # without news, and with it
        raise ProcessError(f"hubbub-decoder ended with exit code {code}")


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
            shares = family_shares("zipf:1.2", len(hosts) - 1) * (1 - hijacked)
            shares = np.append(shares, hijacked)
            held = rng.choice(len(hosts), size=reports_a_day, p=shares)
            batch |= _records(homepage, homepages, held, "")
            day = last - dt.timedelta(days=days - 1 - number)
            await store.append([NewBatch(secrets.token_bytes(16), batch)], day)
            update(number + 1, days)


def _records(
    metric: Metric, clients: SimulatedClients, held: IntArray, slice_: str
) -> dict[MetricVersion, Records]:
    key = MetricVersion(metric.name, metric.version)._replace(slice=slice_)
    records = as_records(*clients.report(held))
    return {key: Records(record_width(metric.params.k), records)}
