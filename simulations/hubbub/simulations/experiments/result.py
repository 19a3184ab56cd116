"""The findings of a simulation, in all the forms in which they are shown.

One result for all of them: what is measured differs from experiment to experiment, how it is shown
and written doesn't. This module makes that of a population of strings: the findings next to
the truth, the score, a page, and the charts that simulations share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.inference import BoolArray, Decoding, FloatArray, IntArray
from hubbub.protocol import RapporParams
from hubbub.reporting import (
    Block,
    Chart,
    Estimates,
    GroupedBars,
    Heading,
    Histogram,
    Labels,
    Line,
    Page,
    Section,
    Series,
    Table,
    XYChart,
    atomic_write,
    certainty,
    columns_from,
    headings,
    shortened,
    visible,
    write_html,
    write_json,
    write_picture,
)
from hubbub.simulations.experiments.experiment import Experiment, ExperimentOutcome, Target
from hubbub.simulations.experiments.scoring import Band, DecodedShares

_ROWS = 50  # one page
_NAME = 60  # characters: the line stays on a terminal's
_NAMED = 12  # points with a name; more names cover each other
_BINS = 20
"""Bins of p-values: the first holds those below .05."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The findings of a simulation; the same outcome makes the same bytes."""

    estimates: Estimates  # figures, and what a terminal and a page show of them
    # By file name; a file without charts removes that of an earlier run.
    pictures: Mapping[str, tuple[Chart, ...]]

    def write(self, folder: Path) -> None:
        """Write result.json, the page and the pictures into a folder that exists."""
        atomic_write(folder / "result.json", partial(write_json, self.estimates))
        if self.estimates.page:
            atomic_write(folder / "report.html", partial(write_html, self.estimates))
        for name, charts in self.pictures.items():
            if charts:
                write_picture(folder / name, charts)
            else:
                (folder / name).unlink(missing_ok=True)


def simulation_result(
    facts: Mapping[str, object],
    shown: tuple[Block, ...],
    page: Page | None = None,
    pictures: Mapping[str, tuple[Chart, ...]] | None = None,
    rows: Sequence[Mapping[str, float]] = (),
) -> SimulationResult:
    """Return a simulation's figures (those of result.json) as estimates, with pictures."""
    columns = columns_from(dict.fromkeys(rows[0], float), rows) if rows else {}
    estimates = Estimates(columns=columns, metadata=facts, view=shown, page=page)
    return SimulationResult(estimates, pictures or {})


def origin(options: Mapping[str, object], params: RapporParams, seed: int) -> dict[str, object]:
    """Return what all documents begin with."""
    return {
        "version": version("hubbub"),
        "options": dict(options),
        "params": params._asdict(),
        "seed": seed,
    }


def tried(options: Mapping[str, object], params: RapporParams, **others: object) -> Section:
    """Return the section of a page on what was tried."""
    everything = {**options, **params._asdict(), **others}
    return Section("What was tried", facts={k: cell(v) for k, v in everything.items()})


def cell(value: Any) -> str:
    """Return a value as text: numbers with four significant digits, nothing for nan."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def experiment_result(
    experiment: Experiment, outcome: ExperimentOutcome, options: Mapping[str, object]
) -> SimulationResult:
    """Show what was found of a population of strings."""
    score = outcome.score
    sentences = _sentences(experiment, outcome)
    strings = _largest(experiment, _detected(outcome))
    estimates, by_share, p_values = _charts(experiment, outcome)
    facts = {
        **origin(options, experiment.params, experiment.seed),
        "reports": experiment.honest + experiment.forged,
        "forged": experiment.forged,
        "candidates": len(experiment.scenario.candidates),
        "score": {**asdict(score), "precision": score.precision, "recall": score.recall},
        "by_share": [
            {**asdict(band), "recall": band.recall, "precision": band.precision}
            for band in outcome.bands
        ],
        "absent_with_p_value_at_most": outcome.p_values,
        "audit": {**asdict(outcome.audit), "kept": outcome.audit.kept},
        "targets": [asdict(target) for target in outcome.targets],
        "decoder": outcome.estimates.summary,
    }
    p_rows = tuple((level, cell(share)) for level, share in outcome.p_values.items())
    p_table = Table("P-values", headings("at most", "share of them"), p_rows)
    sections = [
        Section("How good it was", tuple(sentences[1:])),
        Section("Estimates", charts=(estimates,), tables=(strings,)),
        Section("By share", charts=(by_share,), tables=(_by_share(outcome),)),
        Section("Strings that no client has", charts=p_values, tables=(p_table,)),
        *_targets(outcome),
        tried(options, experiment.params, seed=experiment.seed),
    ]
    return simulation_result(
        facts,
        (strings, *map(_target_line, outcome.targets), *map(Line, sentences)),
        Page("A simulated population", sentences[0], sections),
        {"estimates.png": (estimates,), "by_share.png": (by_share,), "p_values.png": p_values},
    )


_Detected = tuple[str, float, float, float, float]
"""A string as it may be shown, its true share, estimate, low and high."""


def _detected(outcome: ExperimentOutcome) -> list[_Detected]:
    estimates = outcome.estimates
    found = np.flatnonzero(estimates.detected)
    order: IntArray = found[np.argsort(-estimates.share[found], kind="stable")]
    strings = [visible(outcome.strings[i]) for i in order.tolist()]
    columns = (outcome.truth, estimates.share, estimates.low, estimates.high)
    return list(zip(strings, *(column[order].tolist() for column in columns), strict=True))


def _largest(experiment: Experiment, detected: Sequence[_Detected]) -> Table:
    """Return the largest detected strings and the truth."""
    n_reports = experiment.honest + experiment.forged
    heads = headings("string", "true share", "estimate", "95% interval")
    heads += (Heading("detected", "left"),)
    rows = tuple(
        (
            *(string, f"{truth:.3%}", f"{share:.3%}", f"{low:.3%} … {high:.3%}"),
            certainty(low, n_reports),
        )
        for string, truth, share, low, high in detected[:_ROWS]
    )
    return Table("Detected strings", heads, rows)


def _target_line(target: Target) -> Line:
    found = "detected" if target.detected else "not detected"
    return Line(
        f"target {shortened(visible(target.string), _NAME)}: true {target.truth:.3%}, "
        f"estimated {_known(target.estimate, '.3%')}, {found}"
    )


def _charts(
    experiment: Experiment, outcome: ExperimentOutcome
) -> tuple[Chart, Chart, tuple[Chart, ...]]:
    """Return estimates against the truth, recall and precision by share, and absent p-values."""
    estimates, truth = outcome.estimates, outcome.truth
    total = experiment.honest + experiment.forged
    title = f"{total:,} reports, {_listed(experiment)}"
    absent = estimates.p_value[(truth == 0) & ~np.isnan(estimates.p_value)]
    return (
        estimates_chart(outcome.strings, truth, estimates, title),
        bands_chart(outcome.bands),
        (p_values_chart(absent),) if len(absent) else (),
    )


def _by_share(outcome: ExperimentOutcome) -> Table:
    return Table(
        "Recall by true share, precision by estimated share",
        headings("share", "present", "found", "recall", "reported", "right", "precision"),
        tuple(
            (
                f"{band.low:g} to {band.high:g}",
                *map(cell, (band.present, band.found, band.recall)),
                *map(cell, (band.reported, band.right, band.precision)),
            )
            for band in outcome.bands
        ),
    )


def _targets(outcome: ExperimentOutcome) -> Iterator[Section]:
    """Yield what became of the forged reports' targets, if there are any."""
    rows = tuple(
        (visible(each.string), cell(each.truth), cell(each.estimate), cell(each.detected))
        for each in outcome.targets
    )
    if rows:
        heads = headings("string", "true share", "estimate", "detected")
        yield Section("Targets of the forged reports", tables=(Table("Targets", heads, rows),))


def _sentences(experiment: Experiment, outcome: ExperimentOutcome) -> list[str]:
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
    covered = f"{_known(result.interval_coverage_detected, '.1%')} of the detected."
    if experiment.scenario.candidates:
        everyone = _known(result.interval_coverage, ".1%")
        covered = f"{everyone} of the candidates, {covered}"
    covered = f"95% intervals hold the truth for {covered}"
    ratio = "an infinite likelihood ratio"
    if math.isfinite(audit.observed):
        ratio = f"a likelihood ratio of e^{audit.observed:.3f}"
    audited = (
        "An attacker who distinguished two values by single reports saw "
        + (
            "the most revealing pattern in none of them"
            if math.isinf(audit.at_least)
            else f"{ratio}, so the true one is at least e^{audit.at_least:.3f}"
        )
        + f"; epsilon_report, {audit.epsilon_report:.3f}, bounds the true one"
        + ("." if audit.kept else ", and is EXCEEDED.")
    )
    seeded = f"{size}; {_listed(experiment)}; seed {experiment.seed}."
    return [seeded, found, covered, audited]


def _listed(experiment: Experiment) -> str:
    n_candidates = len(experiment.scenario.candidates)
    return f"{n_candidates:,} candidates" if n_candidates else "no candidates"


def _known(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def estimates_chart(
    strings: tuple[str, ...],
    truth: FloatArray,
    estimates: DecodedShares | Decoding,
    title: str,
    what: str = "strings",
) -> XYChart:
    """Return truth against estimate: detected strings with error bars, other present ones too."""
    truth, share, detected = 100 * truth, 100 * estimates.share, estimates.detected
    low, high = 100 * estimates.low, 100 * estimates.high
    found = np.flatnonzero(detected)
    largest = set(found[np.argsort(-share[found])][:_NAMED].tolist())

    def points(chosen: BoolArray, label: str) -> Series:
        names = tuple(
            visible(strings[i]) if i in largest else "" for i in np.flatnonzero(chosen).tolist()
        )
        return Series(
            label, truth[chosen], share[chosen], "points", low[chosen], high[chosen], names
        )

    missed = ~detected & (truth > 0) & ~np.isnan(share)
    top = max(float(truth.max()), float(share[detected].max(initial=0.0)), 0.1)
    series = [
        Series("held by someone, not detected", truth[missed], share[missed], "cloud"),
        points(detected & (truth > 0), "detected, with 95% interval"),
        points(detected & (truth == 0), "detected, but held by no client"),
        Series("estimate = truth", np.array([0.0, top]), np.array([0.0, top]), "reference"),
    ]
    wrong = int((detected & (truth == 0)).sum())
    described = (
        f"{int(detected.sum()):,} {what} were detected, {wrong:,} of them held by no client; "
        f"{int(missed.sum()):,} others are held by some. Unbiased estimates lie about the line."
    )
    words = Labels(
        "truth", title, described, "true share of the reports (%)", "estimated share (%)"
    )
    return XYChart(words, [each for each in series if len(each.x)])


def bands_chart(rows: Sequence[Band]) -> GroupedBars:
    """Return recall by true shares, and precision by estimated ones: two bars a decade."""
    described = (
        "Common strings are found, rare ones are not; precision should stay high at every share. "
        "A band without strings has no bar."
    )
    words = Labels(
        "by-share",
        "Recall and precision by share",
        described,
        "share of the reports",
        "share of the strings",
    )
    groups = (
        ("recall: of the strings that common, found", np.array([band.recall for band in rows])),
        (
            "precision: of those reported as that common, true",
            np.array([band.precision for band in rows]),
        ),
    )
    return GroupedBars(words, tuple(f"≤ {100 * band.high:g}%" for band in rows), groups)


def p_values_chart(p_values: FloatArray) -> Histogram:
    """Return the histogram of absent candidates' p-values; it should be level."""
    heights, edges = np.histogram(p_values, bins=_BINS, range=(0.0, 1.0))
    even = len(p_values) / _BINS
    described = (
        f"Histogram of {len(p_values):,} p-values of strings that no client has: {heights[0]:,} "
        f"are below {1 / _BINS:g}; {even:,.4g} would be in every bar if all were equally likely."
    )
    words = Labels("p-values", "P-values of strings that no client has", described, "p-value",
                   "strings")  # fmt: skip
    return Histogram(words, heights.astype(float), edges, np.full(_BINS, even))
