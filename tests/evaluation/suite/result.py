"""The suite's cases -> a table: a figure and its error per column, one row per case."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from evaluation.laboratory import Figure
from evaluation.measured_table import MeasuredTable
from evaluation.suite.bounds import CaseResult, oracle_ratios, variation_ratios
from hubbub.protocol import counted

_COLUMNS: tuple[tuple[str, Callable[[CaseResult], str]], ...] = (
    ("case", lambda r: r.case),
    ("runs", lambda r: str(r.runs)),
    ("listed", lambda r: f"{r.candidates:,}"),
    ("found", lambda r: f"{r.true_positives.mean:.1f}"),
    ("oracle's", lambda r: f"{r.oracle.mean:.1f}"),
    ("coverage", lambda r: _shown(r.coverage)),
    ("of detected", lambda r: _shown(r.coverage_detected)),
    ("of unknown", lambda r: _rate(r.coverage_unknown)),
    ("of unlisted", lambda r: _rate(r.coverage_unlisted)),
    ("false share", lambda r: _shown(r.false_share)),
    ("any false", lambda r: _shown(r.any_false)),
    ("variation", lambda r: _shown(r.total_variation)),
    ("plain's", lambda r: _shown(r.baseline_variation)),
    ("plain's false", lambda r: _shown(r.baseline_false_share)),
    ("CPU s", lambda r: f"{r.seconds.mean:.2f}"),
    ("broken", lambda r: ", ".join(r.broken)),
)


def suite_table(results: Sequence[CaseResult]) -> MeasuredTable:
    """Return means over runs with standard errors, and what the whole comes to.

    results: At least one.
    """
    rows = tuple(tuple(cell(result) for _, cell in _COLUMNS) for result in results)
    headings = tuple(heading for heading, _ in _COLUMNS)
    return MeasuredTable(
        "How the decoder keeps its promises", headings, rows, tuple(_sentences(results))
    )


def _sentences(results: Sequence[CaseResult]) -> list[str]:
    sentences = []
    if ratios := variation_ratios(results):
        sentences.append(
            f"Total variation over the detected is on average {sum(ratios) / len(ratios):.2f} "
            "times that of least squares with the two-standard-error rule (largest "
            f"{max(ratios):.2f})."
        )
    if of_oracle := oracle_ratios(results):
        sentences.append(
            f"{sum(of_oracle) / len(of_oracle):.0%} of what the oracle finds is found on average "
            f"(least {min(of_oracle):.0%})."
        )
    broken = [result.case for result in results if result.broken]
    verdict = f"{len(broken)} of {counted(len(results), 'case')} broke a bound"
    return [*sentences, f"{verdict}: {', '.join(broken)}." if broken else f"{verdict}."]


def _shown(figure: Figure) -> str:
    if math.isnan(figure.mean):
        return ""
    error = "" if math.isinf(figure.std_error) else f" ± {_short(figure.std_error)}"
    return f"{_short(figure.mean)}{error}"


def _rate(figure: Figure) -> str:
    return "" if math.isnan(figure.mean) else f"{figure.mean:.2f}"


def _short(number: float) -> str:
    return f"{number:.3f}".removeprefix("0")
