"""A service to watch: a collector, apps that report to it, and a report that sharpens.

What is sent, stored and decoded is what the demonstration has; here it comes in rounds, until
somebody stops it or the time is over.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hubbub.collector.access.auth import generate_secret
from hubbub.decoder.pipeline import decode_metric
from hubbub.protocol.registry import Registry
from hubbub.reporting.estimates import Estimates
from hubbub.reporting.formats.files import atomic_write
from hubbub.reporting.formats.html import write_html
from hubbub.simulations.demo import METRICS
from hubbub.simulations.experiments.collecting import (
    UploadError,
    report_through_clients,
    upload_reports,
)
from hubbub.simulations.experiments.processes import running_collector, start_afresh
from hubbub.simulations.populations import census_first_names
from hubbub.simulations.simulated_clients.clients import SimulatedClients

METRIC = "first_name"
_APPS = 20
"""Real clients in a round, each an app with a state of its own; the other reports are simulated."""
_ADMIN = 'admin_port = 0\npublish_seconds = 1\n[admin_tokens.try]\nscopes = ["read"]\nsha256 = '
_REFRESH = b'<head>\n<meta http-equiv="refresh" content="3">'


def run_quickstart(
    folder: Path, reports_a_round: int, seconds: float, show: Callable[[str], None]
) -> Estimates | None:
    """Collect and decode in rounds, until SIGINT, SIGTERM or the time is over.

    `folder`: exists; gets metrics.toml, hubbub.db, names.txt and report.html, which reloads itself.
    `reports_a_round`: of apps and simulated clients together. `seconds`: no round begins later.
    `show`: takes a line for the person who watches. Returns of the last round; None if there was
    none. Raises `ProcessError, UploadError` if a part of the system fails. Raises `FolderError` if
    the folder has files of somebody else.
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
    """Return a round's line: how many names are found, and the commonest beside its truth."""
    rows = sorted(range(len(found["string"])), key=lambda row: -float(found["proportion"][row]))
    line = f"{collected:>9,} reports: {len(rows):>3} names found"
    if not rows:
        return line
    first = rows[0]
    name, share = found["string"][first], float(found["proportion"][first])
    error = (float(found["prop_high"][first]) - float(found["prop_low"][first])) / 2
    return f"{line}; {name} {share:.2%} ± {error:.2%} (truth {shares[name]:.2%})"
