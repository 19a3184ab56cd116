"""An experiment with opted-in people as a result: what their names and counts bring, by share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hubbub.reporting.charts import Chart, Labels, Series, XYChart
from hubbub.reporting.formats.picture import write_picture
from hubbub.reporting.result import (
    ROWS,
    Block,
    Columns,
    Line,
    Report,
    Result,
    Section,
    Table,
    Types,
    columns_of,
    headings,
)
from hubbub.simulations.experiments.blend import BlendExperiment, BlendOutcome, BlendTrial
from hubbub.simulations.experiments.result import cell, write_page

LEVEL = 0.05
_FOUND = ("found_locally", "found_by_counts", "found_blended")
_ERRORS = ("local_error", "central_error", "blended_error")
_FIGURES = (
    *("opted_in", "users", "names", *_FOUND, "false_locally", "false_blended", *_ERRORS),
    *("bias", "coverage", "coverage_detected", "coverage_unknown", "rejected"),
)
_WORDS = {
    "opted_in": "opted in",
    "users": "people",
    "names": "names",
    "found_locally": "found locally",
    "found_by_counts": "found by counts",
    "found_blended": "found blended",
    "false_locally": "false locally",
    "false_blended": "false blended",
    "local_error": "error locally",
    "central_error": "error of counts",
    "blended_error": "error blended",
    "bias": "bias",
    "coverage": "coverage",
    "coverage_detected": "of detected",
    "coverage_unknown": "of unknown",
    "rejected": "rejected",
}
_EXPLAINED = (
    "Means over the runs. Names: what the curator found, which is the list of candidates, besides "
    "strings that nobody holds; of these are the false ones. Found: names that are detected by the "
    "reports alone, the counts alone and both. Errors: root mean square over the names, of the "
    "population's shares, in percentage points; bias: the blended shares' mean relative error in "
    "percent. Coverage: of the blended 95% intervals, of those of the detected, and of the mass "
    "that isn't detected. Rejected: runs in which the groups were said to differ at a level of .05."
)


@dataclass(frozen=True, slots=True)
class BlendResult(Result):
    """What was tried, and how it went; the same outcome makes the same bytes.

    Attributes
    ----------
    options : mapping
        Of the command, as they are to be shown.
    """

    experiment: BlendExperiment
    outcome: BlendOutcome
    options: Mapping[str, object]

    @property
    def types(self) -> Types:
        """The figures of one share of opted-in people."""
        return dict.fromkeys(_FIGURES, float)

    def parts(self) -> Iterator[Columns]:
        """Yield a row a share."""
        yield columns_of(self.types, self._rows())

    def document(self) -> Mapping[str, object]:
        """Return everything that result.json says."""
        experiment = self.experiment
        return {
            "version": version("hubbub"),
            "options": dict(self.options),
            "params": experiment.params._asdict(),
            "epsilon_report": experiment.params.epsilon_report,
            "seed": experiment.seed,
            "runs": experiment.runs,
            "least_count": experiment.least_count,
            "found_if_all_are_listed": float(np.mean(self.outcome.all_listed)),
            "rows": ROWS,
        }

    def blocks(self) -> Iterator[Block]:
        """Yield the table, and what it is compared with."""
        yield self._table()
        yield Line(_EXPLAINED)
        yield Line(self._baseline())

    def report(self) -> Report:
        """Return the page."""
        charts = self.charts()
        facts = {**self.options, **self.experiment.params._asdict()}
        sections = [
            Section("By opted-in share", (_EXPLAINED,), tables=(self._table(),)),
            Section("What is found", charts=(charts["found"],)),
            Section("How far off shares are", charts=(charts["errors"],)),
            Section("What was tried", facts={k: cell(v) for k, v in facts.items()}),
        ]
        return Report("Some people opt in", self._baseline(), sections)

    def charts(self) -> dict[str, Chart]:
        """Return the page's charts by the names of their files."""
        rows = self._rows()
        share = np.array([100 * row["opted_in"] for row in rows])

        def series(names: Mapping[str, str]) -> list[Series]:
            return [
                Series(label, share, np.array([row[name] for row in rows]))
                for name, label in names.items()
            ]

        last = rows[-1]
        found = (
            f"With {last['opted_in']:.2%} opted in {last['names']:.4g} names are found; of these "
            f"{last['found_locally']:.4g} are detected by the reports alone, and "
            f"{last['found_blended']:.4g} with the counts."
        )
        errors = (
            f"With {last['opted_in']:.2%} opted in, {last['local_error']:.3g} points of the "
            f"reports alone, {last['central_error']:.3g} of the counts alone, "
            f"{last['blended_error']:.3g} of both."
        )
        listed = float(np.mean(self.outcome.all_listed))
        in_all = Series(
            "reports alone, all values listed, nobody opted in", share,
            np.full(len(share), listed), "reference",
        )  # fmt: skip
        return {
            "found": XYChart(
                Labels("found", "Strings that are found", found, "opted in (%)", "strings"),
                [
                    *series({
                        "names": "names that the curator found",
                        "found_blended": "detected by the blend",
                        "found_by_counts": "detected by the counts",
                        "found_locally": "detected by the reports",
                    }),
                    in_all,
                ],
                log_x=True,
            ),
            "errors": XYChart(
                Labels("errors", "Errors of shares", errors, "opted in (%)", "points"),
                series({
                    "local_error": "reports", "central_error": "counts", "blended_error": "blend",
                }),
                log_x=True,
                log_y=True,
            ),
        }  # fmt: skip

    def write(self, folder: Path) -> None:
        """Write result.json, report.html and the charts as PNG into a folder that exists."""
        write_page(self, folder)
        for name, chart in self.charts().items():
            write_picture(folder / f"{name}.png", [chart])

    def _rows(self) -> list[dict[str, float]]:
        experiment = self.experiment
        return [
            {"opted_in": share, "users": float(round(experiment.people * share)), **_means(trials)}
            for share, trials in zip(experiment.opted_in, self.outcome.trials, strict=True)
        ]

    def _table(self) -> Table:
        rows = tuple(
            (f"{row['opted_in']:.2%}", *(cell(row[name]) for name in _FIGURES[1:]))
            for row in self._rows()
        )
        return Table("By opted-in share", headings(*(_WORDS[name] for name in _FIGURES)), rows)

    def _baseline(self) -> str:
        experiment, listed = self.experiment, float(np.mean(self.outcome.all_listed))
        n_values = len(experiment.population.values)
        return (
            f"{experiment.people:,} people, {experiment.runs:,} runs, seed {experiment.seed}; the "
            f"curator finds names from a noisy count of {experiment.least_count:,} on. If nobody "
            "opted in, nothing would be found without a list, and "
            f"{listed:.4g} strings if all {n_values:,} values were listed."
        )


def _means(trials: Sequence[BlendTrial]) -> dict[str, float]:
    def mean(figure: Callable[[BlendTrial], float]) -> float:
        values = np.array([figure(trial) for trial in trials], dtype=np.float64)
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else np.nan

    def share(of: Callable[[BlendTrial], tuple[int, int]]) -> float:
        held, total = (sum(column) for column in zip(*map(of, trials), strict=True))
        return held / total if total else np.nan

    def points(place: int) -> float:
        return 100 * float(np.sqrt(mean(lambda trial: trial.squared_errors[place])))

    return {
        "names": mean(lambda trial: trial.names),
        **{
            name: mean(lambda trial, place=place: trial.found[place])  # type: ignore[misc]
            for place, name in enumerate(_FOUND)
        },
        "false_locally": mean(lambda trial: trial.false.local),
        "false_blended": mean(lambda trial: trial.false.blended),
        **{name: points(place) for place, name in enumerate(_ERRORS)},
        "bias": 100 * mean(lambda trial: trial.bias),
        "coverage": share(lambda trial: trial.covered),
        "coverage_detected": share(lambda trial: trial.covered_detected),
        "coverage_unknown": mean(lambda trial: trial.unknown_covered),
        "rejected": mean(lambda trial: trial.p_value <= LEVEL),
    }
