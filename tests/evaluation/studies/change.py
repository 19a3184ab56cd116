"""How much changing values reveal, beside what is stated of them (docs/understand/proofs.md)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from evaluation.measured_table import MeasuredTable
from evaluation.studies.study import OUTPUT, show
from evaluation.studies.transcripts import (
    Recordings,
    answer_keys,
    largest_log_ratio,
    log_ratio,
    record,
    worst_values,
)
from hubbub.client import Metric, Registry
from hubbub.planning import any_history_epsilon, same_times_epsilon
from hubbub.reporting import progress_bar
from significance import FloatArray

_EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "metrics.toml"
_REPORTS = (2, 10, 60)
_PERIODS = (1, 7, 30)
_ROUNDING = 1e-9  # of doubles
CONSTANT = "B / A"
HALF_WAY = "A then B / A"


@dataclass(frozen=True, slots=True)
class Contest:
    """Two histories that an observer of all of a client's reports is to tell apart."""

    metric: Metric
    pair: str  # what the two histories are
    first: Recordings  # first, second: Equally long
    second: Recordings

    @property
    def reports(self) -> int:
        """Reports that a client makes."""
        return 1 if self.metric.one_time else len(self.first.values)

    @property
    def same_times(self) -> float:
        """What is stated if both histories changed at the same times."""
        values = max(len(set(answer_keys(self.metric, r))) for r in (self.first, self.second))
        return same_times_epsilon(self.metric, self.reports, values)

    @property
    def any_history(self) -> float:
        """What is stated of any two histories; infinite if nothing is."""
        return any_history_epsilon(self.metric, self.reports, self.metric.max_answers)

    @property
    def changes_at_same_times(self) -> bool:
        """Whether values are equal at the same times in both."""
        first, second = (answer_keys(self.metric, r) for r in (self.first, self.second))
        return first == second

    @property
    def stated(self) -> float:
        return self.same_times if self.changes_at_same_times else self.any_history


@dataclass(frozen=True, slots=True)
class Audit:
    """What simulated clients gave away."""

    contest: Contest
    # shape (clients,): |log likelihood ratio| of clients that had the first history
    of_first: FloatArray
    of_second: FloatArray  # shape (clients,): of clients that had the second
    possible: float  # the largest of all transcripts

    @property
    def largest(self) -> float:
        return float(max(self.of_first.max(), self.of_second.max()))

    @property
    def median(self) -> float:
        """The median of clients that had the first history."""
        return float(np.median(self.of_first))

    @property
    def above(self) -> float:
        """Share of these that exceed what is stated of changes at the same times."""
        return float(np.mean(self.of_first > self.contest.same_times * (1 + _ROUNDING)))

    @property
    def broken(self) -> bool:
        """Whether a statement doesn't hold."""
        return max(self.largest, self.possible) > self.contest.stated * (1 + _ROUNDING)


def modes(metric: Metric) -> Iterator[Metric]:
    """Yield a metric as it is registered, and in the other ways in which it could be."""
    if metric.one_time:
        yield metric
        return
    by_value = metric._replace(memory="value", period_days=0, max_periods=0)
    yield by_value._replace(max_values=100)
    yield by_value._replace(max_values=1)
    for days in _PERIODS:
        yield metric._replace(memory="period", period_days=days, max_periods=10_000)


def contests(metric: Metric, reports: int) -> Iterator[Contest]:
    """Yield pairs of histories, of values that share no bit.

    Periods' borders lie so that the first day is in the middle of one.
    """
    one, other = worst_values(metric)
    first_day = metric.period_days // 2
    constant = (one,) * reports
    half = reports // 2
    swapping, swapped = ((pair * reports)[:reports] for pair in ((one, other), (other, one)))
    pairs = {CONSTANT: ((other,) * reports, constant)}
    if reports > 1:
        pairs[HALF_WAY] = ((one,) * half + (other,) * (reports - half), constant)
        pairs["B last / A"] = ((*constant[1:], other), constant)
        pairs["ABAB.. / A"] = (swapping, constant)
        pairs["ABAB.. / BABA.."] = (swapping, swapped)
    if metric.memory == "period":
        by_period = [(first_day + day) // metric.period_days % 2 for day in range(reports)]
        pairs["B every other period / A"] = (tuple((one, other)[i] for i in by_period), constant)
    for pair, (first, second) in pairs.items():
        histories = Recordings(first, first_day), Recordings(second, first_day)
        yield Contest(metric, pair, *histories)


def audit(contest: Contest, clients: int) -> Audit:
    """Simulate so many clients of each history, and attack their reports by the true law."""
    first, second = contest.first, contest.second

    def ratios(recordings: Recordings) -> FloatArray:
        transcripts = (record(contest.metric, recordings) for _ in range(clients))
        return np.array([abs(log_ratio(contest.metric, t, first, second)) for t in transcripts])

    possible = max(
        largest_log_ratio(contest.metric, *pair) for pair in ((first, second), (second, first))
    )
    return Audit(contest, ratios(first), ratios(second), possible)


def audit_all(
    registry: Registry, clients: int, progress: Callable[[int, int], None]
) -> list[Audit]:
    """Audit every metric in every mode."""
    all_contests = [
        contest
        for metric in registry.values()
        for mode in modes(metric)
        for reports in ((1,) if metric.one_time else _REPORTS)
        for contest in contests(mode, reports)
    ]
    audits = []
    for done, contest in enumerate(all_contests):
        audits.append(audit(contest, clients))
        progress(done + 1, len(all_contests))
    return audits


def summary_table(audits: Sequence[Audit]) -> MeasuredTable:
    """Return a table with a line for each metric, memory and number of reports."""
    found: dict[tuple[str, str, int], list[Audit]] = {}
    for result in audits:
        contest = result.contest
        key = (contest.metric.name, memory_words(contest.metric), contest.reports)
        found.setdefault(key, []).append(result)
    rows = []
    for (name, memory, reports), results in found.items():
        same = [result for result in results if result.contest.changes_at_same_times]
        halves = [result for result in results if result.contest.pair == HALF_WAY]
        half = [(_number(each.median), f"{each.above:.0%}") for each in halves]
        rows.append(
            (
                name,
                memory,
                str(reports),
                _number(max(result.contest.same_times for result in same)),
                _number(max(result.largest for result in same)),
                _number(results[0].contest.any_history),
                _number(max(result.largest for result in results)),
                *(half[0] if half else ("", "")),
            )
        )
    headings = ("metric", "memory", "reports", "same times", "largest of same times",
                "any history", "largest of any history", "change: median", "above")  # fmt: skip
    return MeasuredTable("What linked reports tell of changes", headings, tuple(rows))


def pairs_table(audits: Sequence[Audit]) -> MeasuredTable:
    """Return a table with a line for each pair of histories."""
    rows = []
    for result in audits:
        contest = result.contest
        figures = (contest.same_times, contest.any_history, result.possible, result.median,
                   result.largest)  # fmt: skip
        name, memory = contest.metric.name, memory_words(contest.metric)
        cells = (str(contest.reports), *map(_number, figures), f"{result.above:.0%}")
        rows.append((name, memory, contest.pair, *cells))
    headings = ("metric", "memory", "histories", "reports", "same times", "any history",
                "possible", "median", "largest", "above")  # fmt: skip
    return MeasuredTable("What linked reports tell of histories", headings, tuple(rows))


def _number(value: float) -> str:
    return "not bounded" if math.isinf(value) else f"{value:.2f}"


def memory_words(metric: Metric) -> str:
    """Return a metric's mode in a word or two."""
    if metric.one_time:
        return "one-time"
    if metric.memory == "period":
        return "1 day" if metric.period_days == 1 else f"{metric.period_days} days"
    return "first value" if metric.max_values == 1 else "value"


@click.command("change")
@click.argument("metrics", default=str(_EXAMPLE), type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--clients", default=100, show_default=True, type=click.IntRange(1), help="Of each history."
)
@click.option("--pairs", is_flag=True, help="A line for each pair of histories.")
@OUTPUT
def main(metrics: str, clients: int, pairs: bool, output: tuple[Path, ...]) -> None:
    """Attack the linked reports of clients whose values change, by the exact likelihood ratio.

    METRICS is a metrics.toml (the example's unless told otherwise). Each of its metrics is audited
    with both memories. Histories are made of two values that share no bit. Reports come once a day,
    from the client's encoder with the system's coins.

    \b
    same times   what is stated of histories that change at the same times; the largest log
                 likelihood ratio that such histories' clients showed
    any history  what is stated of any two; the largest of all
    change       "A, then B half-way" against "always A": the median; the share of clients
                 above "same times"

    With --pairs, "possible" is the largest log ratio of all transcripts, and "B / A" means clients
    that always have B, told apart from those that always have A.

    Fails if anything exceeds what is stated of it.
    """
    with progress_bar("auditing") as progress:
        audits = audit_all(Registry.load(metrics), clients, progress)
    show((pairs_table if pairs else summary_table)(audits), output)
    broken = [result for result in audits if result.broken]
    click.echo(f"{len(audits)} pairs of histories, {len(broken)} above what is stated of them.")
    sys.exit(bool(broken))
