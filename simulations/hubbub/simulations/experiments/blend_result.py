"""An experiment with opted-in people as a result: what their names and counts bring, by share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hubbub.reporting.blocks import ROWS, Line, Page, Section, Table, headings
from hubbub.reporting.charts import Labels, Series, XYChart
from hubbub.simulations.experiments.blend import BlendExperiment, BlendOutcome, BlendTrial
from hubbub.simulations.experiments.result import (
    SimulationResult,
    cell,
    origin,
    simulation_result,
    tried,
)

LEVEL = 0.05
"""At which the groups are said to differ."""
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


_Row = Mapping[str, float]
"""The figures of one share of opted-in people, in the order of `_FIGURES`."""


def blend_result(
    experiment: BlendExperiment, outcome: BlendOutcome, options: Mapping[str, object]
) -> SimulationResult:
    """Show what the opted-in's names and counts bring, by their share.

    Parameters
    ----------
    experiment : BlendExperiment
    outcome : BlendOutcome
    options : mapping
        Of the command, as they are to be shown.
    """
    rows = [
        {"opted_in": share, "users": float(round(experiment.people * share)), **_means(trials)}
        for share, trials in zip(experiment.opted_in, outcome.trials, strict=True)
    ]
    listed = float(np.mean(outcome.all_listed))
    begins = origin(options, experiment.params, experiment.seed)
    facts = {
        **{name: begins[name] for name in ("version", "options", "params")},
        "epsilon_report": experiment.params.epsilon_report,
        "seed": experiment.seed,
        "runs": experiment.runs,
        "least_count": experiment.least_count,
        "found_if_all_are_listed": listed,
        "rows": ROWS,
    }
    table, baseline = _table(rows), _baseline(experiment, listed)
    found, errors = _found_chart(rows, listed), _errors_chart(rows)
    sections = [
        Section("By opted-in share", (_EXPLAINED,), tables=(table,)),
        Section("What is found", charts=(found,)),
        Section("How far off shares are", charts=(errors,)),
        tried(options, experiment.params),
    ]
    return simulation_result(
        facts,
        (table, Line(_EXPLAINED), Line(baseline)),
        Page("Some people opt in", baseline, sections),
        {"found.png": (found,), "errors.png": (errors,)},
        tuple(rows),
    )


def _series(rows: Sequence[_Row], names: Mapping[str, str]) -> list[Series]:
    share = np.array([100 * row["opted_in"] for row in rows])
    return [
        Series(label, share, np.array([row[name] for row in rows])) for name, label in names.items()
    ]


def _found_chart(rows: Sequence[_Row], listed: float) -> XYChart:
    last = rows[-1]
    described = (
        f"With {last['opted_in']:.2%} opted in {last['names']:.4g} names are found; of these "
        f"{last['found_locally']:.4g} are detected by the reports alone, and "
        f"{last['found_blended']:.4g} with the counts."
    )
    found = _series(
        rows,
        {
            "names": "names that the curator found",
            "found_blended": "detected by the blend",
            "found_by_counts": "detected by the counts",
            "found_locally": "detected by the reports",
        },
    )
    in_all = "reports alone, all values listed, nobody opted in"
    found.append(Series(in_all, found[0].x, np.full(len(rows), listed), "reference"))
    words = Labels("found", "Strings that are found", described, "opted in (%)", "strings")
    return XYChart(words, found, log_x=True)


def _errors_chart(rows: Sequence[_Row]) -> XYChart:
    last = rows[-1]
    described = (
        f"With {last['opted_in']:.2%} opted in, {last['local_error']:.3g} points of the "
        f"reports alone, {last['central_error']:.3g} of the counts alone, "
        f"{last['blended_error']:.3g} of both."
    )
    labels = {"local_error": "reports", "central_error": "counts", "blended_error": "blend"}
    words = Labels("errors", "Errors of shares", described, "opted in (%)", "points")
    return XYChart(words, _series(rows, labels), log_x=True, log_y=True)


def _table(rows: Sequence[_Row]) -> Table:
    cells = tuple(
        (f"{row['opted_in']:.2%}", *(cell(row[name]) for name in _FIGURES[1:])) for row in rows
    )
    return Table("By opted-in share", headings(*(_WORDS[name] for name in _FIGURES)), cells)


def _baseline(experiment: BlendExperiment, listed: float) -> str:
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
