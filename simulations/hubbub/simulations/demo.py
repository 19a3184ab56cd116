"""The demonstration: half a million people's first names, found again without knowing anyone's.

Real census frequencies, a real collector process, real HTTP, the real decoder; then, because this
population's truth is known, a score. Then the same names once more, without any list of names. All
files are left in one folder.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from hubbub.decoder import decode_metric
from hubbub.inference import FloatArray
from hubbub.protocol import OpenStringType, Registry
from hubbub.reporting import (
    Block,
    Estimates,
    Heading,
    Line,
    Table,
    atomic_write,
    certainty,
    headings,
    mass_interval,
    visible,
    write_json,
)
from hubbub.simulations.experiments.collecting import (
    report_through_clients,
    run_decoder,
    running_collector,
    start_afresh,
    upload_reports,
)
from hubbub.simulations.experiments.result import (
    SimulationResult,
    estimates_chart,
    simulation_result,
)
from hubbub.simulations.experiments.scoring import DecodedShares, Score, score
from hubbub.simulations.populations import census_first_names, census_names
from hubbub.simulations.simulated_clients.clients import SimulatedClients

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


_HEADS = headings("name", "true share", "estimate", "95% interval")


def _row(
    name: str, truth: Mapping[str, float], share: float, low: float, high: float
) -> tuple[str, ...]:
    true = f"{truth.get(name, 0.0):.2%}"
    return visible(name), true, f"{share:.2%}", f"{low:.2%} … {high:.2%}"


@dataclass(frozen=True, slots=True)
class OpenNames:
    """Names that were found without a list."""

    found: Estimates
    truth: dict[str, float]  # share of the reports of every name that somebody has
    epsilon: float  # of a client's only report
    seconds: float  # from the first report to the result

    @property
    def rows(self) -> list[int]:
        """The detected names, the largest first."""
        share = self.found["proportion"]
        detected = [row for row, found in enumerate(self.found["detected"]) if found]
        return sorted(detected, key=lambda row: -float(share[row]))

    @property
    def n_false(self) -> int:
        """The number of names that no client has."""
        names = self.found["string"]
        return sum(names[row] not in self.truth for row in self.rows)

    def blocks(self) -> Iterator[Block]:
        """Yield the names that were found, and what they come to."""
        columns = [self.found[name] for name in ("proportion", "prop_low", "prop_high")]
        rows = [
            _row(self.found["string"][i], self.truth, *(float(column[i]) for column in columns))
            for i in self.rows
        ]
        yield Line("\nAnd this is what is found without any list of names:\n")
        yield Table("Unlisted names", _HEADS, tuple(rows))
        metadata: Mapping[str, Any] = self.found.metadata
        yield Line(
            f"{len(rows) - self.n_false} names that clients have, {self.n_false} that none has "
            f"(at most {metadata['summary']['alpha']:.0%} on average), of "
            f"{metadata['search']['proposed']:,} that "
            f"the prefixes proposed; epsilon {self.epsilon:.2f} for the only report of each; "
            f"{self.seconds:.0f} s"
        )


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The findings and the truth."""

    candidates: tuple[str, ...]
    truth: FloatArray  # shape (n,); each candidate's share of the reports
    estimates: DecodedShares
    score: Score
    n_reports: int
    seed: int
    seconds: float  # what it all took
    unlisted: OpenNames  # names that were found without the candidates

    def blocks(self) -> Iterator[Block]:
        """Yield the detected names, the largest first, and what they come to."""
        estimates, figures = self.estimates, self.score
        found = np.flatnonzero(estimates.detected)
        columns = [each.tolist() for each in (estimates.share, estimates.low, estimates.high)]
        rows = tuple(
            (
                *_row(self.candidates[i], self.unlisted.truth, *(column[i] for column in columns)),
                certainty(estimates.low[i], self.n_reports),
            )
            for i in found[np.argsort(-estimates.share[found])].tolist()
        )
        yield Table("Detected names", (*_HEADS, Heading("detected", "left")), rows)
        summary = estimates.summary
        yield Line(
            f"true positives {figures.true_positives}, false positives {figures.false_positives} "
            f"of {len(self.candidates):,} candidates (chance of any <= {summary['alpha']:g}); "
            f"total variation {figures.total_variation:.4f}; 95% intervals hold the truth for "
            f"{figures.interval_coverage:.1%}"
        )
        yield Line(
            f"epsilon {summary['epsilon_report']:.2f} a report, "
            f"{summary['epsilon_permanent']:.2f} for all of an answer's; a share of "
            f"{summary['detection_limit']:.2%} is found with probability 0.9; "
            f"{mass_interval(summary['unknown_share'], summary['unknown_std_error'])} of the "
            "reports hold names that are too rare to detect"
        )
        yield from self.unlisted.blocks()


def demo_result(outcome: DemoOutcome) -> SimulationResult:
    """Show what was found, with pictures of the estimates and of the unlisted names."""
    unlisted = outcome.unlisted
    facts = {
        "reports": outcome.n_reports,
        "candidates": len(outcome.candidates),
        **asdict(outcome.score),
        "seed": outcome.seed,
        "seconds": round(outcome.seconds, 1),
        "open_found": len(unlisted.rows),
        "open_false": unlisted.n_false,
        "open_epsilon": unlisted.epsilon,
        "open_seconds": round(unlisted.seconds, 1),
    }
    title = f"{outcome.n_reports:,} noisy reports, {len(outcome.candidates):,} candidate names"
    chart = estimates_chart(outcome.candidates, outcome.truth, outcome.estimates, title)
    page = unlisted.found.report()
    trees = tuple(each for each in page.charts if each.labels.name == "tree")
    pictures = {"estimates.png": (chart,), "tree.png": trees}
    return simulation_result(facts, tuple(outcome.blocks()), None, pictures)


def run_demo(
    folder: Path, n_reports: int, n_clients: int, seed: int, progress: Progress
) -> DemoOutcome:
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
        metric = registry[_METRIC]
        simulated = SimulatedClients(population.values, metric.params, rng)
        cohorts, bits = simulated.report(held[n_clients:])
        with progress("simulated clients report") as update:
            asyncio.run(upload_reports(metric, cohorts, bits, collector.url, update))
        open_started = time.monotonic()
        metric = registry[_OPEN_METRIC]
        open_type = cast("OpenStringType", metric.type)
        simulated = SimulatedClients(population.values, metric.params, rng, open_type)
        cohorts, bits = simulated.report(held)
        with progress("they report once more, without a list") as update:
            asyncio.run(upload_reports(metric, cohorts, bits, collector.url, update))
        open_seconds = time.monotonic() - open_started
    where = ("--metrics", f"{folder}/metrics.toml", "--store", f"sqlite:///{folder}/hubbub.db")
    names = ("--candidates", f"{folder}/names.txt", "--correction", "bonferroni")
    how = ("--min-reports", "1", "--estimand", "reports")
    run_decoder(["decode", _METRIC, *where, *names, *how, "--output", f"{folder}/estimates.json"])
    _, estimates = DecodedShares.read(folder / "estimates.json")
    counts = np.bincount(held, minlength=len(population.values)) / n_reports
    by_name = {
        n: share for n, share in zip(population.values, counts.tolist(), strict=True) if share
    }
    truth = np.array([by_name.get(name, 0.0) for name in candidates])
    figures = score(truth, estimates.share, estimates.low, estimates.high, estimates.detected)
    open_started = time.monotonic()
    found = _decode_unlisted(folder)
    open_seconds += time.monotonic() - open_started
    unlisted = OpenNames(found, by_name, metric.epsilon_report, open_seconds)
    seconds = time.monotonic() - started
    return DemoOutcome(candidates, truth, estimates, figures, n_reports, seed, seconds, unlisted)


def _decode_unlisted(folder: Path) -> Estimates:
    """Find names without a list, and write what `hubbub-decoder decode` would."""
    result = decode_metric(
        _OPEN_METRIC,
        metrics=folder / "metrics.toml",
        store=f"sqlite:///{folder}/hubbub.db",
        min_reports=1,
    )
    atomic_write(folder / "open.json", partial(write_json, result))
    return result
