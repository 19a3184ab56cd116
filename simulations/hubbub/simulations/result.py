"""The findings of a simulation, in all the forms in which they are shown.

One result for all of them: what is measured differs, how it is shown and written doesn't. This
module makes that of a population too: the findings next to the truth, the score, and a page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.inference import BoolArray, Decoding, FloatArray
from hubbub.protocol import UNARY, counted
from hubbub.reporting import (
    Block,
    Chart,
    Estimates,
    Heading,
    Labels,
    Line,
    Page,
    Section,
    Series,
    Table,
    XYChart,
    certainty,
    shortened,
    table_of,
    visible,
    write_files,
)
from hubbub.simulations.experiment import DecodedShares, Experiment, ExperimentOutcome

_ROWS = 50  # one page
_NAME = 60  # characters: the line stays on a terminal's
_NAMED = 12  # points with a name; more names cover each other


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The findings of a simulation; the same outcome makes the same bytes."""

    facts: Mapping[str, object]  # those of result.json
    shown: tuple[Block, ...]  # on a terminal
    charts: tuple[Chart, ...]  # the picture
    page: Page | None = None

    def write(self, folder: Path) -> None:
        """Write result.json, the picture and the page into a folder that exists."""
        estimates = Estimates(metadata=self.facts, page=self.page, charts=self.charts)
        for name in ("result.json", "estimates.png", *(["report.html"] if self.page else [])):
            write_files(estimates, [str(folder / name)])


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
    """Show what was found of a population."""
    plan, score = experiment.plan, outcome.score
    response = {} if plan.response == UNARY else plan.response.definition()
    tried = {**options, **plan.params._asdict(), **response, "seed": experiment.seed}
    facts = {
        "version": version("hubbub"),
        "options": dict(options),
        "params": plan.params._asdict(),
        **response,
        "seed": experiment.seed,
        "mode": plan.mode,
        "reports": experiment.reports,
        "forged": experiment.forged,
        "candidates": len(experiment.scenario.candidates),
        "score": {**asdict(score), "precision": score.precision, "recall": score.recall},
        "decoder": outcome.summary,
    }
    sentences = _sentences(experiment, outcome)
    if experiment.forged:
        place = outcome.strings.index(experiment.target)
        truth, estimate = float(outcome.truth[place]), float(outcome.estimates.share[place])
        detected = bool(outcome.estimates.detected[place])
        facts["target"] = {
            "string": experiment.target, "truth": truth, "estimate": estimate, "detected": detected,
        }  # fmt: skip
        sentences.append(
            f"Forged reports are for {shortened(visible(experiment.target), _NAME)}: true "
            f"{truth:.3%}, estimated {_known(estimate, '.3%')}, "
            f"{'detected' if detected else 'not detected'}."
        )
    table = names_table(
        "What was detected", outcome.strings, outcome.truth, outcome.estimates, experiment.reports
    )
    title = f"{experiment.reports:,} reports, {_listed(experiment)}"
    chart = estimates_chart(outcome.strings, outcome.truth, outcome.estimates, title)
    sections = [
        Section("How good it was", tuple(sentences[1:])),
        Section("Estimates", charts=(chart,), tables=(table,)),
        Section("What was tried", facts={name: cell(value) for name, value in tried.items()}),
    ]
    return SimulationResult(
        facts,
        (table, *map(Line, sentences)),
        (chart,),
        Page("A simulated population", sentences[0], sections),
    )


def names_table(
    title: str,
    names: tuple[str, ...],
    truth: FloatArray,
    found: DecodedShares,
    n_reports: int,
) -> Table:
    """Return the largest detected shares next to the truth."""
    rows = np.flatnonzero(found.detected)
    rows = rows[np.argsort(-found.share[rows], kind="stable")]
    if len(rows) > _ROWS:
        title = f"{title}, the {_ROWS} largest of {len(rows):,}"
        rows = rows[:_ROWS]
    numbers = {"true": truth, "share": found.share, "low": found.low, "high": found.high}
    columns = {name: values[rows] for name, values in numbers.items()}
    shown = (("true share", "{true:.3%}"), ("estimate", "{share:.3%}"),
             ("95% interval", "{low:.3%} … {high:.3%}"))  # fmt: skip
    sure = [certainty(low, n_reports) for low in columns["low"].tolist()]
    listed = [(visible(names[row]),) for row in rows.tolist()]
    last = Heading("detected", "left"), sure
    return table_of(title, listed, columns, shown, heads=("name",), last=last)


def _sentences(experiment: Experiment, outcome: ExperimentOutcome) -> list[str]:
    plan, found = experiment.plan, outcome.score
    forged = f", {experiment.forged:,} of them forged" if experiment.forged else ""
    often = "one" if plan.reports_each == 1 else f"{plan.reports_each}"
    every = f", one in {counted(plan.period_days, 'day')}" if plan.period_days else ""
    reported = (
        f"{experiment.reports:,} reports{forged}, {often} of each client{every}, at epsilon "
        f"{plan.metric.epsilon_report:.4g} per report; {_listed(experiment)}; seed "
        f"{experiment.seed}."
    )
    detected = (
        f"{found.true_positives} rightly detected, {found.false_positives} wrongly, "
        f"{found.false_negatives} present but missed; precision "
        f"{_known(found.precision, '.3f')}, recall {_known(found.recall, '.3f')}; "
        f"total variation {found.total_variation:.4f} over the detected, "
        f"{found.total_variation_all:.4f} over all."
    )
    covered = (
        f"95% intervals hold the truth for {_known(found.interval_coverage, '.1%')} of all, "
        f"{_known(found.interval_coverage_detected, '.1%')} of the detected."
    )
    return [reported, detected, covered]


def _listed(experiment: Experiment) -> str:
    n_candidates = len(experiment.scenario.candidates)
    return f"{n_candidates:,} candidates" if n_candidates else "no candidates"


def _known(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def estimates_chart(
    strings: tuple[str, ...], truth: FloatArray, estimates: DecodedShares | Decoding, title: str
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
        f"{int(detected.sum()):,} were detected, {wrong:,} of them held by no client; "
        f"{int(missed.sum()):,} others are held by some. Unbiased estimates lie about the line."
    )
    words = Labels(
        "truth", title, described, "true share of the reports (%)", "estimated share (%)"
    )
    return XYChart(words, [each for each in series if len(each.x)])
