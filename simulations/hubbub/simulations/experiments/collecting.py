"""An experiment through the real programs: HTTP, the collector process, the decoder's command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hubbub.decoder.arrays import ByteArray, IntArray
from hubbub.protocol.params import RapporParams
from hubbub.protocol.registry import Registry
from hubbub.simulations.experiments.estimates import read_estimates
from hubbub.simulations.experiments.experiment import Experiment, Outcome, judge_estimates
from hubbub.simulations.experiments.processes import run_decoder, running_collector
from hubbub.simulations.experiments.uploading import upload_fleet
from hubbub.simulations.fleet.reporting import Reporter, chunks

_METRIC = "simulated"


class UnlistableError(Exception):
    """A candidate that a file of one string a line can't hold at its place."""


def run_through_collector(
    experiment: Experiment,
    folder: Path,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Outcome:
    """Send all reports to a collector, decode its store, and score the result.

    Parameters
    ----------
    experiment : Experiment
        All its days are one day to the collector.
    folder : Path
        Exists; gets metrics.toml, candidates.txt, hubbub.db and estimates.json.
    progress : callable
        Told how many chunks of clients have reported, and of how many.

    Raises
    ------
    UnlistableError
        If a candidate holds a line break, or the first begins with a byte order mark.
    ProcessError, UploadError
        If a part of the system fails.
    """
    metrics = _prepare(folder, experiment)
    metric = Registry.load(metrics)[_METRIC]
    holders = np.zeros(len(experiment.world.population.values), dtype=np.int64)
    with running_collector(metrics, folder / "hubbub.db", ["--log-level", "warning"]) as collector:

        def upload(cohorts: IntArray, bits: ByteArray) -> None:
            asyncio.run(upload_fleet(metric, cohorts, bits, collector.url, lambda _d, _t: None))

        reporter = Reporter(experiment.plan, experiment.people)
        parts = chunks(experiment.plan, experiment.people)
        for done, chunk in enumerate(parts, start=1):
            for day in reporter.days(chunk):
                upload(day.cohorts, day.bits)
                holders += np.bincount(day.held, minlength=len(holders))
            progress(done, len(parts))
        for cohorts, bits in experiment.forgeries():
            upload(cohorts, bits)
    _decode(metrics, folder, experiment)
    return judge_estimates(experiment, holders, read_estimates(folder / "estimates.json"))


def metric_toml(params: RapporParams) -> str:
    """Return the registry of a simulation's one metric."""
    lines = [
        'application = "org.example.simulation"',
        f"[metrics.{_METRIC}]",
        "version = 1",
        'type = "string"',
        'description = "Made-up strings of a simulated population"',
        'owner = "simulation@example.org"',
        "expires = 2099-12-31",
        *(f"{name} = {value}" for name, value in params._asdict().items()),
        *(['mode = "one-time"'] if params.f == 0 or (params.p, params.q) == (0, 1) else []),
    ]
    return "\n".join(lines) + "\n"


def _prepare(folder: Path, experiment: Experiment) -> Path:
    for old in folder.glob("hubbub.db*"):
        old.unlink()
    strings = experiment.world.candidates
    if any("\n" in string or "\r" in string for string in strings):
        raise UnlistableError("a candidate holds a line break: only --through memory can take it")
    if strings[0].startswith("\ufeff"):
        raise UnlistableError(
            "the first candidate begins with a byte order mark: only --through memory can take it"
        )
    (folder / "candidates.txt").write_text("\n".join(strings) + "\n", encoding="utf-8")
    metrics = folder / "metrics.toml"
    metrics.write_text(metric_toml(experiment.params), encoding="utf-8")
    return metrics


def _decode(metrics: Path, folder: Path, experiment: Experiment) -> None:
    where = ("--metrics", str(metrics), "--store", f"sqlite:///{folder}/hubbub.db")
    names = ("--candidates", str(folder / "candidates.txt"), "--min-reports", "1")
    how = ("--correction", experiment.correction, "--alpha", str(experiment.alpha))
    output = ("--method", experiment.method, "--output", str(folder / "estimates.json"))
    run_decoder(["decode", _METRIC, *where, *names, *how, *output])
