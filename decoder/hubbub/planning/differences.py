"""The plan of a comparison: how many reports it takes to find a difference between two groups.

Or which difference so many find. Invariant: thresholds are those of `hubbub.inference.comparison`,
for a row that is the only one that differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from hubbub.inference import (
    AlwaysValid,
    FixedSample,
    PlanError,
    SequentialTest,
    number_scale,
    share_scale,
)
from hubbub.planning.goals import wrong_type
from hubbub.planning.limits import (
    DetectionTest,
    cells_error,
    detection_limit,
    least_reaching,
    reports_reaching,
    string_errors,
)
from hubbub.planning.noise import subset_variance, widest_variance
from hubbub.planning.strings import string_params
from hubbub.protocol import EnumType, Metric, NumberType, OrdinalType, Subset, Window
from hubbub.reporting import Column, Estimates, Finding, as_lines

USUAL_ROWS = 20
"""Strings that are compared, unless somebody knows better."""
_CLOSE = 1e-7  # of a difference, of which three digits of a percentage are shown


@dataclass(frozen=True, slots=True)
class PlannedComparison:
    """The least difference that is found between two groups of a metric's reports, N in each.

    Raises `PlanError` if metrics of its type aren't compared, or a number is out of range.
    """

    metric: Metric
    # The control's share of the value that differs; for numbers the worst population is assumed.
    share: float
    rows: float | None = None  # by default all categories, all statistics, or 20 strings
    candidates: float = 1e4  # strings that are looked for
    alpha: float = 0.05  # false discovery rate among the rows
    power: float = 0.8
    sequential: bool = False  # whether the comparison may be looked at every day

    def __post_init__(self) -> None:
        """Refuse what isn't compared."""
        if not 0 <= self.share < 1:
            raise PlanError(f"share = {self.share:g}: must be at least 0 and below 1")
        metric_type = self.metric.type
        if isinstance(metric_type, EnumType | OrdinalType | NumberType):
            return
        if metric_type.width is not None:
            types = "'string', 'enum', 'ordinal' or 'number'"
            raise wrong_type(self.metric, f"must be {types} for a comparison to be planned")
        string_params(self.metric)

    @property
    def test(self) -> DetectionTest:
        """The test of one of the rows."""
        rows: float = USUAL_ROWS
        if isinstance(self.metric.type, NumberType):
            rows = self._groups
        elif self.metric.type.width is not None:
            rows = self.metric.type.width
        return DetectionTest(self.rows or rows, self.alpha, self.power)

    @property
    def _groups(self) -> int:
        """Into how many halves the clients of a group are divided."""
        metric_type = self.metric.type
        return 2 if isinstance(metric_type, NumberType) and metric_type.variance else 1

    def chance(self, n_reports: float, difference: float) -> float:
        """Return the probability with which N reports in each group find a difference."""
        error = self._error(n_reports, difference)
        z = float(self._looks.critical_z(math.log(self.test.level), np.array(error)))
        found = float(special.ndtr(difference / error - z))
        if self._hashed:
            found *= self._chance_of_detection(2 * n_reports, self.share + difference / 2)
        return found

    def _chance_of_detection(self, n_reports: float, share: float) -> float:
        """Return the probability that both groups together detect a string.

        From the limit on, whose errors are the theory's: of larger shares it takes the string's own
        raised bits for doubt, but in a fit they are explained.
        """
        params, test = self.metric.params, DetectionTest(self.candidates, self.alpha)
        limit = detection_limit(params, n_reports, test)
        if limit == math.inf:
            return 0.0
        error = string_errors(params, n_reports, limit, test).present
        return float(special.ndtr((share - limit) / error + special.ndtri(test.power)))

    def difference(self, n_reports: float) -> float:
        """Return the least difference that is found with the power; infinite if none."""
        return least_reaching(
            lambda difference: self.chance(n_reports, difference) >= self.power,
            1 - self.share,
            _CLOSE,
        )

    def reports_needed(self, difference: float) -> float:
        """Return how many reports in each group find a difference; infinite if no number does."""
        return reports_reaching(lambda n: -self.chance(n, difference), -self.power)

    @property
    def _hashed(self) -> bool:
        return not isinstance(self.metric.type, EnumType | OrdinalType | NumberType)

    @property
    def _looks(self) -> SequentialTest:
        if not self.sequential:
            return FixedSample()
        if isinstance(self.metric.response, Window):
            return AlwaysValid(number_scale(self.metric.response))
        return AlwaysValid(share_scale(self.metric.params))

    def _error(self, n_reports: float, difference: float) -> float:
        both = sum(self._variance(self.share + more) for more in (0.0, difference))
        return math.sqrt(both * self._groups / n_reports)

    def _variance(self, share: float) -> float:
        """Return the variance of a share, or a mean, times the number of clients."""
        params, response = self.metric.params, self.metric.response
        if isinstance(response, Window):
            return widest_variance(response)
        if isinstance(response, Subset):
            return subset_variance(response, share)
        if not self._hashed:
            return cells_error(params, self.metric.type.width or 0, share=share) ** 2
        # Unlisted strings set the same bits in both groups, so it doesn't scatter differences.
        # But each string that is fitted takes one of the k m bit rates from the others.
        known = DetectionTest(self.candidates, self.alpha, concentration=0.0)
        left = 1 - self.test.candidates / (params.k * params.m)
        variance = string_errors(params, 1.0, share, known).present ** 2
        return variance / left if left > 0 else math.inf


def comparison_estimates(
    asked: PlannedComparison, n_reports: float | None, difference: float | None
) -> Estimates:
    """Return how many reports in each group find a difference, or which difference so many find."""
    if n_reports is None:
        if difference is None:
            raise PlanError("reports, difference: one of them must be given")
        n_reports = asked.reports_needed(difference)
        if math.isinf(n_reports):
            raise PlanError(f"difference = {difference:g}: no number of reports finds it")
        n_reports, difference = math.ceil(n_reports), None
    least = asked.difference(n_reports)
    findings = tuple(_findings(asked, n_reports, difference, least))
    row: dict[str, float] = {
        "reports": n_reports,
        "difference": least if math.isfinite(least) else math.nan,
        "rows": asked.test.candidates,
        "control": asked.share,
        "alpha": asked.alpha,
        "power": asked.power,
    }
    return Estimates(
        columns={
            "metric": Column(str, [asked.metric.name]),
            **{name: Column(float, [number]) for name, number in row.items()},
            "sequential": Column(bool, [asked.sequential]),
        },
        keys=("metric",),
        findings=findings,
        view=tuple(as_lines(findings, wraps=True)),
    )


def _findings(
    asked: PlannedComparison, n_reports: float, difference: float | None, least: float
) -> Iterator[Finding]:
    """Yield which difference is found, the chance of a given one, and what daily looks cost."""
    where = f"a value that {asked.share:.3%} of the control have"
    if isinstance(asked.metric.response, Window):
        where = "the mean, in parts of the range,"
    size = f"A difference of {least:.3%}" if least < math.inf else "No difference"
    text = (
        f"{size} in {where} is found with probability {asked.power:g} from {n_reports:,.0f} "
        f"reports in each group, among {asked.test.candidates:,.0f} rows (false discovery rate "
        f"{asked.alpha:g}) even if no other row differs."
    )
    yield Finding("least_difference", "", text, least)
    if difference is not None:
        chance = asked.chance(n_reports, difference)
        text = f"A difference of {difference:.3%} is found with probability {chance:.2f}."
        yield Finding("chance", "", text, chance)
    if asked.sequential and least < math.inf:
        needed = replace(asked, sequential=False).reports_needed(least)
        text = (
            "You may look every day and stop when you like: the difference is found by then "
            "with this probability, and often earlier. A single look, at a time fixed in advance, "
            f"needs {needed:,.0f} reports in each group, {needed / n_reports:.0%} of these."
        )
        yield Finding("one_look_reports", "", text, needed)
