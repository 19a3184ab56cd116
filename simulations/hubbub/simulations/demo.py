"""The demonstration: half a million people's first names, found again without knowing anyone's.

Real census frequencies, a real collector process, real HTTP, the real decoder; then, because this
population's truth is known, a score. Everything lands in one folder for inspection.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from hubbub.decoder.arrays import ByteArray, FloatArray, IntArray
from hubbub.decoder.cli.progress import progress_bar
from hubbub.decoder.inference.intervals import Z_CONFIDENCE
from hubbub.protocol.metrics import Metric
from hubbub.protocol.registry import Registry
from hubbub.simulations.documents import write_document
from hubbub.simulations.experiments.estimates import Estimates, read_estimates
from hubbub.simulations.experiments.processes import run_decoder, running_collector
from hubbub.simulations.experiments.scoring import Score, score
from hubbub.simulations.experiments.uploading import report_through_clients, upload_fleet
from hubbub.simulations.figures import plot_estimates
from hubbub.simulations.fleet.clients import Fleet
from hubbub.simulations.populations import Population, census_first_names, census_names

METRICS = """\
application = "org.example.census"

[metrics.first_name]
version = 1
type = "string"
description = "First names, to show that common ones can be learned without anyone telling theirs"
owner = "privacy@example.org"
expires = 2099-12-31
k = 128
h = 1
m = 64
f = 0.2
p = 0.05
q = 0.75
"""
_METRIC = "first_name"


def run_demo(folder: Path, n_reports: int, n_clients: int, seed: int, console: Console) -> Score:
    """Simulate, collect, decode, score and show.

    Parameters
    ----------
    folder : Path
        Gets metrics.toml, names.txt, hubbub.db, estimates.json, estimates.png and result.json.
    n_reports : int
        People, each reporting once.
    n_clients : int
        How many of them do so through a real `Telemetry` client.
    seed : int
        Of the population and the fleet; real clients use the system's randomness all the same.
    console : Console
        Where the tables go.

    Raises
    ------
    ProcessError, UploadError
        If a part of the system fails.
    """
    started = time.monotonic()
    rng = np.random.default_rng(seed)
    population, candidates = census_first_names(), census_names()
    metrics = _prepare(folder, candidates)
    held = rng.choice(len(population.values), size=n_reports, p=population.shares)
    _collect(metrics, folder / "hubbub.db", population, held, n_clients, rng)
    estimates = _decode(metrics, folder)
    truth = _true_shares(population, held, candidates)
    result = score(truth, estimates.share, estimates.low, estimates.high, estimates.detected)
    seconds = time.monotonic() - started
    _write_result(folder / "result.json", result, n_reports, len(candidates), seed, seconds)
    plot_estimates(
        folder / "estimates.png",
        candidates,
        truth,
        estimates.share,
        Z_CONFIDENCE * estimates.std_error,
        estimates.detected,
        f"{n_reports:,} noisy reports, {len(candidates):,} candidate names",
    )
    _show(console, candidates, truth, estimates, result)
    console.print(
        f"\n{n_reports:,} reports ({n_clients:,} through real clients), seed {seed}, "
        f"{seconds:.0f} s; files in {folder}/"
    )
    return result


def _prepare(folder: Path, candidates: tuple[str, ...]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("hubbub.db*"):
        old.unlink()
    (folder / "names.txt").write_text("\n".join(candidates) + "\n", encoding="utf-8")
    metrics = folder / "metrics.toml"
    metrics.write_text(METRICS, encoding="utf-8")
    return metrics


def _collect(
    metrics: Path,
    database: Path,
    population: Population,
    held: IntArray,
    n_clients: int,
    rng: np.random.Generator,
) -> None:
    """Send everybody's report to a collector process, and let it drain."""
    registry = Registry.load(metrics)
    metric = registry[_METRIC]
    values = [population.values[i] for i in held[:n_clients]]
    with running_collector(metrics, database, ["--log-level", "warning"]) as collector:
        with progress_bar("real clients report") as bar:
            report_through_clients(registry, _METRIC, values, collector.url, bar)
        cohorts, bits = _simulate(metric, population, held[n_clients:], rng)
        with progress_bar("the fleet reports") as bar:
            asyncio.run(upload_fleet(metric, cohorts, bits, collector.url, bar))


def _simulate(
    metric: Metric, population: Population, held: IntArray, rng: np.random.Generator
) -> tuple[IntArray, ByteArray]:
    return Fleet(population.values, metric.params, rng).report(held)


def _decode(metrics: Path, folder: Path) -> Estimates:
    output = folder / "estimates.json"
    where = ("--metrics", str(metrics), "--store", f"sqlite:///{folder}/hubbub.db")
    names = ("--candidates", str(folder / "names.txt"))
    how = ("--correction", "bonferroni", "--output", str(output), "--min-reports", "1")
    run_decoder(["decode", _METRIC, *where, *names, *how])
    return read_estimates(output)


def _true_shares(population: Population, held: IntArray, candidates: tuple[str, ...]) -> FloatArray:
    counts = np.bincount(held, minlength=len(population.values)) / len(held)
    by_name = dict(zip(population.values, counts.tolist(), strict=True))
    return np.array([by_name.get(name, 0.0) for name in candidates])


def _write_result(
    path: Path, result: Score, n_reports: int, n_candidates: int, seed: int, seconds: float
) -> None:
    figures = {"reports": n_reports, "candidates": n_candidates, **asdict(result)}
    write_document(path, {**figures, "seed": seed, "seconds": round(seconds, 1)})


def _show(
    console: Console,
    candidates: tuple[str, ...],
    truth: FloatArray,
    estimates: Estimates,
    result: Score,
) -> None:
    table = Table(title="Detected names", title_justify="left")
    table.add_column("name")
    for heading in ("true share", "estimate", "95% interval"):
        table.add_column(heading, justify="right")
    found = np.flatnonzero(estimates.detected)
    for i in found[np.argsort(-estimates.share[found])]:
        interval = f"{estimates.low[i]:.2%} … {estimates.high[i]:.2%}"
        table.add_row(candidates[i], f"{truth[i]:.2%}", f"{estimates.share[i]:.2%}", interval)
    console.print(table)
    summary = estimates.summary
    console.print(
        f"true positives {result.true_positives}, false positives {result.false_positives} "
        f"of {len(candidates):,} candidates (chance of any <= {summary['alpha']:g}); "
        f"total variation {result.total_variation:.4f}; 95% intervals hold the truth for "
        f"{result.interval_coverage:.1%}"
    )
    console.print(
        f"epsilon {summary['epsilon_report']:.2f} a report, {summary['epsilon_permanent']:.2f} for "
        f"life; a share of {summary['detection_limit']:.2%} is found with probability 0.9; "
        f"{summary['unknown_share']:.0%} of the reports hold names that are too rare to detect"
    )
