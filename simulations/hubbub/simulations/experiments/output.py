"""An experiment's outcome as JSON, pictures, one HTML page, and lines for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hubbub.decoder.arrays import IntArray
from hubbub.decoder.inference.intervals import Z_CONFIDENCE
from hubbub.decoder.results.wording import visible
from hubbub.simulations import pages
from hubbub.simulations.documents import write_document
from hubbub.simulations.experiments.experiment import Experiment, Outcome
from hubbub.simulations.figures import plot_bands, plot_estimates, plot_p_values

_ROWS = 50


def write_outcome(
    folder: Path, experiment: Experiment, outcome: Outcome, options: Mapping[str, object]
) -> None:
    """Write result.json, report.html and the figures into a folder that exists.

    The files hold no times, so the same outcome makes the same bytes.
    """
    write_document(folder / "result.json", result_document(experiment, outcome, options))
    _draw(folder, experiment, outcome)
    html = _html(folder, experiment, outcome, options)
    (folder / "report.html").write_text(html, encoding="utf-8")


def result_document(
    experiment: Experiment, outcome: Outcome, options: Mapping[str, object]
) -> dict[str, object]:
    """Return everything that result.json says."""
    result = outcome.score
    return {
        "version": version("hubbub"),
        "options": dict(options),
        "params": experiment.params._asdict(),
        "seed": experiment.seed,
        "reports": experiment.honest + experiment.forged,
        "forged": experiment.forged,
        "candidates": len(outcome.truth),
        "score": {
            **asdict(result),
            "precision": result.precision,
            "recall": result.recall,
        },
        "by_share": [
            {**asdict(band), "recall": band.recall, "precision": band.precision}
            for band in outcome.bands
        ],
        "absent_with_p_value_at_most": outcome.p_values,
        "audit": {**asdict(outcome.audit), "kept": outcome.audit.kept},
        "targets": [asdict(target) for target in outcome.targets],
        "decoder": outcome.estimates.summary,
    }


def show_outcome(console: Console, experiment: Experiment, outcome: Outcome) -> None:
    """Print the largest detected strings beside the truth, and the score."""
    table = Table(title="Detected strings", title_justify="left")
    for name in ("string", "true share", "estimate", "95% interval"):
        table.add_column(name, justify="left" if name == "string" else "right")
    for row in _detected_rows(experiment, outcome)[:_ROWS]:
        string, truth, share, low, high = row
        table.add_row(
            Text(visible(string), overflow="fold"),
            f"{truth:.3%}",
            f"{share:.3%}",
            f"{low:.3%} … {high:.3%}",
        )
    console.print(table)
    for target in outcome.targets:
        found = "detected" if target.detected else "not detected"
        console.print(
            f"target {visible(target.string)}: true {target.truth:.3%}, "
            f"estimated {_known(target.estimate, '.3%')}, {found}",
            markup=False,
        )
    for sentence in _sentences(experiment, outcome):
        console.print(sentence)


def _sentences(experiment: Experiment, outcome: Outcome) -> list[str]:
    result, audit = outcome.score, outcome.audit
    forged = f", {experiment.forged:,} of them forged" if experiment.forged else ""
    size = f"{experiment.honest + experiment.forged:,} reports{forged}"
    found = (
        f"{result.true_positives} rightly detected, {result.false_positives} wrongly, "
        f"{result.false_negatives} present but missed; precision "
        f"{_known(result.precision, '.3f')}, recall {_known(result.recall, '.3f')}; "
        f"total variation {result.total_variation:.4f} over the detected, "
        f"{result.total_variation_all:.4f} over all strings."
    )
    covered = (
        f"95% intervals hold the truth for {_known(result.interval_coverage, '.1%')} of the "
        f"candidates, {_known(result.interval_coverage_detected, '.1%')} of the detected."
    )
    ratio = "of" if math.isinf(audit.observed) else f"of e^{audit.observed:.3f},"
    audited = (
        "An attacker who told two values apart by single reports saw "
        + (
            "the most telling pattern in none of them"
            if math.isinf(audit.at_least)
            else f"a likelihood ratio {ratio} at least e^{audit.at_least:.3f}"
        )
        + f"; epsilon_report is {audit.epsilon_report:.3f}."
    )
    seeded = f"{size}; {len(outcome.truth):,} candidates; seed {experiment.seed}."
    return [seeded, found, covered, audited]


def _known(value: float, form: str) -> str:
    """Return a figure, or a dash where there is none."""
    return "–" if math.isnan(value) else format(value, form)


def _detected_rows(
    experiment: Experiment, outcome: Outcome
) -> list[tuple[str, float, float, float, float]]:
    estimates = outcome.estimates
    found = np.flatnonzero(estimates.detected)
    order: IntArray = found[np.argsort(-estimates.share[found], kind="stable")]
    strings = experiment.world.candidates
    columns = (outcome.truth, estimates.share, estimates.low, estimates.high)
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    return [(strings[i], *row) for i, row in zip(order.tolist(), rows, strict=True)]


def _draw(folder: Path, experiment: Experiment, outcome: Outcome) -> None:
    estimates = outcome.estimates
    total = experiment.honest + experiment.forged
    plot_estimates(
        folder / "estimates.png",
        experiment.world.candidates,
        outcome.truth,
        estimates.share,
        Z_CONFIDENCE * estimates.std_error,
        estimates.detected,
        f"{total:,} reports, {len(outcome.truth):,} candidates",
    )
    plot_bands(folder / "by_share.png", outcome.bands)
    absent = estimates.p_value[(outcome.truth == 0) & ~np.isnan(estimates.p_value)]
    histogram = folder / "p_values.png"
    histogram.unlink(missing_ok=True)  # an earlier run may have left one
    if len(absent):
        plot_p_values(histogram, absent)


def _html(
    folder: Path, experiment: Experiment, outcome: Outcome, options: Mapping[str, object]
) -> str:
    names = ("string", "true share", "estimate", "low", "high")
    rows = _detected_rows(experiment, outcome)
    by_share = [
        (f"{band.low:g} to {band.high:g}", band.present, band.found, band.recall, band.reported,
         band.right, band.precision)
        for band in outcome.bands
    ]  # fmt: skip
    parts = [
        *map(pages.paragraph, _sentences(experiment, outcome)),
        pages.heading("Estimates"),
        pages.picture(folder / "estimates.png", "True against estimated shares"),
        pages.table(f"The largest {min(_ROWS, len(rows))} detected", names, rows[:_ROWS]),
        pages.heading("By share"),
        pages.picture(folder / "by_share.png", "Recall and precision by share"),
        pages.table(
            "Recall by true share, precision by estimated share",
            ("share", "present", "found", "recall", "reported", "right", "precision"),
            by_share,
        ),
        pages.heading("Strings that nobody holds"),
        pages.table("P-values", ("at most", "share of them"), list(outcome.p_values.items())),
    ]
    if (folder / "p_values.png").exists():
        parts.append(pages.picture(folder / "p_values.png", "Histogram of their p-values"))
    if outcome.targets:
        parts.append(pages.heading("Targets of the forged reports"))
        targets = [(t.string, t.truth, t.estimate, t.detected) for t in outcome.targets]
        parts.append(
            pages.table("Targets", ("string", "true share", "estimate", "detected"), targets)
        )
    parts.append(pages.heading("What was tried"))
    everything = {**options, **experiment.params._asdict(), "seed": experiment.seed}
    parts.append(pages.table("Options", ("option", "value"), list(everything.items())))
    return pages.page("A simulated population", parts)
