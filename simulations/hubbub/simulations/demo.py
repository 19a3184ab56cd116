"""The demonstration: half a million people's first names, found again without knowing anyone's.

Real census frequencies, a real collector process, real HTTP, the real decoder; then, because this
population's truth is known, a score. Then the same names once more, without any list of names. All
files are left in one folder.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.decoder import decode_metric
from hubbub.inference import FloatArray
from hubbub.protocol import Registry
from hubbub.reporting import Line, atomic_write, mass_interval, write_json
from hubbub.simulations.clients import SimulatedClients
from hubbub.simulations.collecting import (
    report_through_clients,
    running_collector,
    start_afresh,
    upload_reports,
)
from hubbub.simulations.experiment import DecodedShares, score
from hubbub.simulations.populations import census_first_names, census_names
from hubbub.simulations.result import SimulationResult, estimates_chart, names_table

METRICS = """\
application = "org.example.census"

[metrics.first_name]
version = 1
type = "string"
description = "First names, to show that common ones can be learned without anyone revealing theirs"
owner = "privacy@example.org"
expires = 2099-12-31
k = 496
h = 1
m = 96
f = 0.2
p = 0.0062
q = 0.5635

[metrics.first_name_open]
version = 1
type = "open-string"
description = "The same, asked once, to show that no list of names is needed"
owner = "privacy@example.org"
expires = 2099-12-31
mode = "one-time"
steps = [4, 7]
k = 256
m = 128
f = 0.0
p = 0.018
q = 0.5
"""
_METRIC, _OPEN_METRIC = "first_name", "first_name_open"

Progress = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]
"""Opens a progress bar of that label."""


def run_demo(
    folder: Path, n_reports: int, n_clients: int, seed: int, progress: Progress
) -> SimulationResult:
    """Simulate, collect, decode and score.

    `n_reports` people report once to each metric, `n_clients` of them to the first through a real
    `Telemetry` client. The seed is of the population and the simulated clients; real clients use
    the system's randomness all the same. The folder gets metrics.toml, names.txt, hubbub.db,
    estimates.json and open.json.
    """
    started = time.monotonic()
    rng = np.random.default_rng(seed)
    population, candidates = census_first_names(), census_names()
    folder.mkdir(parents=True, exist_ok=True)
    start_afresh(folder)
    (folder / "names.txt").write_text("\n".join(candidates) + "\n", encoding="utf-8")
    (folder / "metrics.toml").write_text(METRICS, encoding="utf-8")
    held = rng.choice(len(population.values), size=n_reports, p=population.shares)
    registry = Registry.load(folder / "metrics.toml")
    values = [population.values[i] for i in held[:n_clients]]
    options = ["--log-level", "warning"]
    with running_collector(folder / "metrics.toml", folder / "hubbub.db", options) as collector:
        with progress("real clients report") as update:
            report_through_clients(registry, _METRIC, values, collector.url, update)
        for name, people, words in (
            (_METRIC, held[n_clients:], "simulated clients report"),
            (_OPEN_METRIC, held, "they report once more, without a list"),
        ):
            metric = registry[name]
            clients = SimulatedClients(population.values, metric.params, rng, metric.type)
            cohorts, bits = clients.report(people)
            with progress(words) as update:
                asyncio.run(upload_reports(metric, cohorts, bits, collector.url, update))
    shares = np.bincount(held, minlength=len(population.values)) / n_reports
    by_name = {
        name: share for name, share in zip(population.values, shares.tolist(), strict=True) if share
    }

    def decoded(
        metric: str, file: str, **how: Any
    ) -> tuple[tuple[str, ...], FloatArray, DecodedShares, Any]:
        """Write what is found; return the names, their true shares and estimates, and facts."""
        found = decode_metric(
            metric, metrics=folder / "metrics.toml", store=f"sqlite:///{folder}/hubbub.db",
            min_reports=1, **how,
        )  # fmt: skip
        atomic_write(folder / file, partial(write_json, found))
        share, low, high = (
            np.asarray(found[name]) for name in ("proportion", "prop_low", "prop_high")
        )
        detected = np.array(found["detected"], dtype=np.bool_)
        names = tuple(found["string"])
        truth = np.array([by_name.get(name, 0.0) for name in names])
        return names, truth, DecodedShares(share, low, high, detected), found.metadata

    names, truth, estimates, about = decoded(
        _METRIC, "estimates.json", candidates=candidates, correction="bonferroni",
        estimand="reports",
    )  # fmt: skip
    open_names, open_truth, open_shares, about_open = decoded(_OPEN_METRIC, "open.json")
    figures, of_unlisted = score(truth, estimates), score(open_truth, open_shares)
    summary, epsilon = about["summary"], registry[_OPEN_METRIC].epsilon_report
    seconds = time.monotonic() - started
    facts = {
        "reports": n_reports,
        "candidates": len(candidates),
        **asdict(figures),
        "seed": seed,
        "seconds": round(seconds, 1),
        "open_found": of_unlisted.detected,
        "open_false": of_unlisted.false_positives,
        "open_epsilon": epsilon,
    }
    shown = (
        names_table("Detected names", names, truth, estimates, n_reports),
        Line(
            f"true positives {figures.true_positives}, false positives {figures.false_positives} "
            f"of {len(candidates):,} candidates (chance of any <= {summary['alpha']:g}); "
            f"total variation {figures.total_variation:.4f}; 95% intervals hold the truth for "
            f"{figures.interval_coverage:.1%}"
        ),
        Line(
            f"epsilon {summary['epsilon_report']:.2f} per report, "
            f"{summary['epsilon_permanent']:.2f} for all of an answer's; a share of "
            f"{summary['detection_limit']:.2%} is found with probability 0.9; "
            f"{mass_interval(summary['unknown_share'], summary['unknown_std_error'])} of the "
            "reports hold names that are too rare to detect"
        ),
        Line("\nAnd this is what is found without any list of names:\n"),
        names_table("Unlisted names", open_names, open_truth, open_shares, n_reports),
        Line(
            f"{of_unlisted.true_positives} names that clients have, "
            f"{of_unlisted.false_positives} that none has (at most "
            f"{about_open['summary']['alpha']:.0%} on average), of "
            f"{about_open['search']['proposed']:,} that the prefixes proposed; epsilon "
            f"{epsilon:.2f} for the only report of each"
        ),
        Line(
            f"\n{n_reports:,} reports ({n_clients:,} through real clients), seed {seed}, "
            f"{seconds:.0f} s; files in {folder}/"
        ),
    )
    title = f"{n_reports:,} noisy reports, {len(candidates):,} candidate names"
    chart = estimates_chart(names, truth, estimates, title)
    return SimulationResult(facts, shown, (chart,))
