"""An experiment's outcome as a result: what was found beside the truth, its score, a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.inference.arrays import IntArray
from hubbub.reporting.charts import Chart
from hubbub.reporting.formats.data_files import write_json
from hubbub.reporting.formats.files import atomic_write
from hubbub.reporting.formats.html_page import write_html
from hubbub.reporting.formats.picture import write_picture
from hubbub.reporting.result import (
    Block,
    Heading,
    Line,
    Report,
    Result,
    Section,
    Table,
    headings,
)
from hubbub.reporting.text import shortened, visible
from hubbub.reporting.wording import certainty
from hubbub.simulations.experiments.charts import bands_chart, estimates_chart, p_values_chart
from hubbub.simulations.experiments.experiment import Experiment, ExperimentOutcome

_ROWS = 50
_NAME = 60


@dataclass(frozen=True, slots=True)
class ExperimentResult(Result):
    """What was tried, and how it went.

    It holds no times, so the same outcome makes the same bytes.

    Attributes
    ----------
    options : mapping
        Of the command, as they are to be shown.
    """

    experiment: Experiment
    outcome: ExperimentOutcome
    options: Mapping[str, object]

    def document(self) -> Mapping[str, object]:
        """Return everything that result.json says."""
        experiment, outcome = self.experiment, self.outcome
        result = outcome.score
        return {
            "version": version("hubbub"),
            "options": dict(self.options),
            "params": experiment.params._asdict(),
            "seed": experiment.seed,
            "reports": experiment.honest + experiment.forged,
            "forged": experiment.forged,
            "candidates": len(experiment.scenario.candidates),
            "score": {**asdict(result), "precision": result.precision, "recall": result.recall},
            "by_share": [
                {**asdict(band), "recall": band.recall, "precision": band.precision}
                for band in outcome.bands
            ],
            "absent_with_p_value_at_most": outcome.p_values,
            "audit": {**asdict(outcome.audit), "kept": outcome.audit.kept},
            "targets": [asdict(target) for target in outcome.targets],
            "decoder": outcome.estimates.summary,
        }

    def blocks(self) -> Iterator[Block]:
        """Yield the largest detected strings beside the truth, the targets, and the score."""
        n_reports = self.experiment.honest + self.experiment.forged
        heads = headings("string", "true share", "estimate", "95% interval")
        heads += (Heading("detected", "left"),)
        rows = tuple(
            (
                *(string, f"{truth:.3%}", f"{share:.3%}", f"{low:.3%} … {high:.3%}"),
                certainty(low, n_reports),
            )
            for string, truth, share, low, high in self._detected()[:_ROWS]
        )
        yield Table("Detected strings", heads, rows)
        for target in self.outcome.targets:
            found = "detected" if target.detected else "not detected"
            yield Line(
                f"target {shortened(visible(target.string), _NAME)}: true {target.truth:.3%}, "
                f"estimated {_known(target.estimate, '.3%')}, {found}"
            )
        yield from map(Line, self._sentences())

    def charts(self) -> dict[str, Chart]:
        """Return the page's charts by the names of their files."""
        estimates, truth = self.outcome.estimates, self.outcome.truth
        total = self.experiment.honest + self.experiment.forged
        charts: dict[str, Chart] = {
            "estimates": estimates_chart(
                self.outcome.strings,
                truth,
                estimates,
                f"{total:,} reports, {self._listed()}",
            ),
            "by_share": bands_chart(self.outcome.bands),
        }
        absent = estimates.p_value[(truth == 0) & ~np.isnan(estimates.p_value)]
        if len(absent):
            charts["p_values"] = p_values_chart(absent)
        return charts

    def write(self, folder: Path) -> None:
        """Write result.json, report.html and the charts as PNG into a folder that exists."""
        (folder / "p_values.png").unlink(missing_ok=True)  # an earlier run may have left one
        write_page(self, folder)
        for name, chart in self.charts().items():
            write_picture(folder / f"{name}.png", [chart])

    def report(self) -> Report:
        """Return the page."""
        outcome, charts = self.outcome, self.charts()
        detected = self._detected()
        n_reports = self.experiment.honest + self.experiment.forged
        strings = Table(
            f"The largest {min(_ROWS, len(detected))} detected",
            (
                *headings("string", "true share", "estimate", "low", "high"),
                Heading("detected", "left"),
            ),
            tuple(
                (string, *map(cell, (*numbers, low, high)), certainty(low, n_reports))
                for string, *numbers, low, high in detected[:_ROWS]
            ),
        )
        by_share = Table(
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
        p_values = tuple((level, cell(share)) for level, share in outcome.p_values.items())
        targets = tuple(
            (visible(each.string), cell(each.truth), cell(each.estimate), cell(each.detected))
            for each in outcome.targets
        )
        everything = {
            **self.options,
            **self.experiment.params._asdict(),
            "seed": self.experiment.seed,
        }
        sections = [
            Section("Estimates", charts=(charts["estimates"],), tables=(strings,)),
            Section("By share", charts=(charts["by_share"],), tables=(by_share,)),
            Section(
                "Strings that nobody holds",
                charts=tuple(charts[name] for name in ("p_values",) if name in charts),
                tables=(Table("P-values", headings("at most", "share of them"), p_values),),
            ),
            Section("What was tried", facts={k: cell(v) for k, v in everything.items()}),
        ]
        if targets:
            heads = headings("string", "true share", "estimate", "detected")
            table = Table("Targets", heads, targets)
            sections.insert(3, Section("Targets of the forged reports", tables=(table,)))
        seeded, *others = self._sentences()
        sections.insert(0, Section("How good it was", tuple(others)))
        return Report("A simulated population", seeded, sections)

    def _detected(self) -> list[tuple[str, float, float, float, float]]:
        """Return detected strings as they may be shown, true share, estimate, low and high."""
        estimates = self.outcome.estimates
        found = np.flatnonzero(estimates.detected)
        order: IntArray = found[np.argsort(-estimates.share[found], kind="stable")]
        strings = [visible(self.outcome.strings[i]) for i in order.tolist()]
        columns = (self.outcome.truth, estimates.share, estimates.low, estimates.high)
        return list(zip(strings, *(column[order].tolist() for column in columns), strict=True))

    def _sentences(self) -> list[str]:
        experiment, result, audit = self.experiment, self.outcome.score, self.outcome.audit
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
            "An attacker who told two values apart by single reports saw "
            + (
                "the most telling pattern in none of them"
                if math.isinf(audit.at_least)
                else f"{ratio}, so the true one is at least e^{audit.at_least:.3f}"
            )
            + f"; epsilon_report, {audit.epsilon_report:.3f}, bounds the true one"
            + ("." if audit.kept else ", and is EXCEEDED.")
        )
        seeded = f"{size}; {self._listed()}; seed {experiment.seed}."
        return [seeded, found, covered, audited]

    def _listed(self) -> str:
        n_candidates = len(self.experiment.scenario.candidates)
        return f"{n_candidates:,} candidates" if n_candidates else "no candidates"


def write_page(result: Result, folder: Path) -> None:
    """Write a result's document and report as result.json and report.html."""
    atomic_write(folder / "result.json", partial(write_json, result))
    atomic_write(folder / "report.html", partial(write_html, result))


def cell(value: Any) -> str:
    """Return a value as text: numbers with four significant digits, nothing for nan."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _known(value: float, form: str) -> str:
    """Return a figure, or a dash where there is none."""
    return "–" if math.isnan(value) else format(value, form)
