"""Counts of two groups -> by how much their shares differ, and how sure that is.

Two periods, two releases of an app, two arms of an experiment: groups of different clients, who
answered the same question with the same parameters. Strings are detected in both groups together.
The pooled share (n_1 s_1 + n_2 s_2) / (n_1 + n_2) and the difference s_2 - s_1 are uncorrelated
where a report's noise is the same in both groups, whatever their sizes; so what is found by the one
has an unbiased other, and no interval has to be corrected for the selection.

How far from 0 a difference must be to count depends on how often one looks. Looked at once, a
difference over its standard error is normal. Looked at while reports come in, it is a Brownian
motion in the time g = (scale / standard error)^2, and Robbins' normal mixture bounds it at all
times together (Howard, Ramdas, McAuliffe and Sekhon 2021; Waudby-Smith et al. 2024):

    E = (1 + g)^(-1/2) exp(z^2/2 g/(1 + g)),    P(E is ever 1/alpha or more) <= alpha.

Invariants: each row's difference is that of its two shares; the scale is known before any report
is, because one that was chosen by what is seen would void the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from scipy import linalg, sparse, special

from hubbub.inference.arrays import BoolArray, FloatArray, SparseMatrix
from hubbub.inference.candidates import Candidates, make_design
from hubbub.inference.categories.decoding import CategoryDecoding, decode_categories
from hubbub.inference.categories.shares import estimate_categories
from hubbub.inference.counts import BitEstimates, estimate_bits, variance_of_one
from hubbub.inference.decoding import Decoding
from hubbub.inference.numbers import (
    NumberDecoding,
    cell_chances,
    cell_weights,
    decode_numbers,
    estimate_numbers,
)
from hubbub.inference.regression.estimates import correlated_bits, with_correlation
from hubbub.inference.regression.model import (
    Fit,
    estimate_excess_variance,
    fit_selected,
    reports_by_row,
)
from hubbub.inference.repeated_reports import ONCE, RepeatedReports
from hubbub.inference.testing.multiple_testing import (
    CONFIDENCE,
    LOG_HALF,
    Z_CONFIDENCE,
    Correction,
    log_cutoff,
    log_q_values,
)
from hubbub.protocol import CohortCounts, Metric, NumberType, RapporParams, Window

_FIRST_LOOK, _REACH = 30_000, 3.0
"""Reports in each group at a typical first look, and the standard errors that an interval reaches.
More reports than that hardly widen intervals, a tenth of them does."""
_FARTHEST, _HALVINGS = 40.0, 60
"""Standard errors within which an interval ends, and halvings after which its ends stand."""


@dataclass(frozen=True, slots=True)
class FixedSample:
    """A single look at differences of s rows, whose time was settled beforehand.

    Arrays are of shape (s,).
    """

    def log_p(self, z: FloatArray, std_error: FloatArray) -> FloatArray:  # noqa: ARG002
        """Return ln of the two-sided p-values of differences of z standard errors."""
        return np.asarray(special.log_ndtr(-np.abs(z)) - LOG_HALF)

    def critical_z(self, log_level: float, std_error: FloatArray) -> FloatArray:
        """Return the |z| whose p-values are a level: the normal distribution's quantile."""
        return np.full(np.shape(std_error), -float(special.ndtri_exp(log_level + LOG_HALF)))

    def conditional_interval(
        self,
        z: FloatArray,
        std_error: FloatArray,  # noqa: ARG002
        cutoff: FloatArray,
        log_error_rate: float,  # noqa: ARG002
    ) -> FloatArray:
        """Return 95% intervals of rows that were picked because they differ; shape (2, s).

        They hold given that |z|, here above 0, passed the cutoff; ends are in standard errors.
        `log_error_rate`: ln of .05, divided among the rows as the correction has it.
        """
        return after_marking(z, cutoff)


def scale_of(variance: float) -> float:
    """Return a mixture's scale, by what is known before any report is.

    `variance`: of a report's estimate of the share that is known worst.
    """
    return _REACH * math.sqrt(2 * variance / _FIRST_LOOK)


@dataclass(frozen=True, slots=True)
class AlwaysValid:
    """Any number of looks at a growing set of reports; methods are those of `FixedSample`."""

    # Shape (s,), or float; standard deviation of the normal mixture, in the unit of the
    # differences: bounds are tightest where an interval reaches about so far to either side.
    scale: FloatArray | float

    def log_p(self, z: FloatArray, std_error: FloatArray) -> FloatArray:
        """Return -ln E, at most 0: valid whenever one looks, without any earlier look."""
        time = self._time(std_error)
        return np.minimum((np.log1p(time) - z**2 * time / (1 + time)) / 2, 0.0)

    def critical_z(self, log_level: float, std_error: FloatArray) -> FloatArray:
        """Return the boundary of the mixture."""
        time = self._time(std_error)
        return np.asarray(np.sqrt((1 + 1 / time) * (np.log1p(time) - 2 * log_level)))

    def conditional_interval(
        self,
        z: FloatArray,
        std_error: FloatArray,
        cutoff: FloatArray,  # noqa: ARG002
        log_error_rate: float,
    ) -> FloatArray:
        """Return intervals of which at most 5% miss, whichever rows are picked (e-BY)."""
        return z + np.outer([-1.0, 1.0], self.critical_z(log_error_rate, std_error))

    def _time(self, std_error: FloatArray) -> FloatArray:
        return np.asarray((self.scale / std_error) ** 2)


SequentialTest = FixedSample | AlwaysValid


def after_marking(z: FloatArray, cutoff: FloatArray | float) -> FloatArray:
    """Return 95% intervals of normal means, given that |z| passed a cutoff; shape (2, n).

    `z`, shape (n,): observed, at least `cutoff`; of unit variance. `cutoff`, shape (n,): above 0.

    Notes
    -----
    The means mu for which P(Z >= z | |Z| >= cutoff) is .025 and .975, found by bisection: it rises
    with mu. So the interval holds mu in 95% of the cases in which a row is marked, whatever mu is.
    """
    tails = np.log([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])[:, None]
    below, above = np.array([z - _FARTHEST, z + _FARTHEST])[:, None] * np.ones((1, 2, 1))
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        marked = np.logaddexp(special.log_ndtr(middle - cutoff), special.log_ndtr(-cutoff - middle))
        is_low = special.log_ndtr(middle - z) - marked < tails
        below, above = np.where(is_low, middle, below), np.where(is_low, above, middle)
    return np.asarray((below + above) / 2)


Pooled = TypeVar("Pooled")
POWER = 0.9
"""Chance with which a difference of the stated size is found, as for shares."""
_MISMATCH = 1e-3
"""Below it sizes don't fit the assignment: one sound comparison in a thousand is suspected."""
_REWEIGHTINGS = 3
"""Rounds after which the excess variance stands: weights depend on it weakly."""
_LOG_ERROR_RATE = math.log(1 - CONFIDENCE)
_MOST_SCATTER = 0.25  # of clients, half of whom have a value


class ReportGroup(NamedTuple):
    """One group's reports."""

    counts: CohortCounts
    # How often its clients have reported, and whose shares are asked for.
    repeats: RepeatedReports = ONCE


class Groups(NamedTuple):
    """The group that is compared with, and the one that is compared."""

    control: ReportGroup
    treatment: ReportGroup

    @property
    def together(self) -> CohortCounts:
        """The counts of both."""
        return self.control.counts + self.treatment.counts


class ShareEstimates(NamedTuple):
    """Estimates of s rows in a group, or of their differences; float64 arrays of shape (s,)."""

    value: FloatArray
    std_error: FloatArray


class SampleRatio(NamedTuple):
    """Whether groups are as large as they were assigned to be."""

    assigned: float  # treatment's reports over the control's
    found: float
    p_value: float  # of "clients were assigned so, and all of them report alike"

    @property
    def mismatches(self) -> bool:
        """Whether chance would hardly explain the sizes."""
        return self.p_value < _MISMATCH


@dataclass(frozen=True, slots=True)
class Comparison(Generic[Pooled]):
    """Differences of s rows between two groups."""

    kind: str  # what rows are of: "string", "category" or "statistic"
    # The strings that were detected in both groups together, largest first; or all categories; or
    # the statistics of a number.
    names: tuple[str, ...]
    control: ShareEstimates  # unbiased; may fall outside [0, 1]
    treatment: ShareEstimates
    difference: ShareEstimates  # treatment less control
    # Shape (s,); 95% intervals of the differences; of rows that differ, given that they were
    # marked.
    low: FloatArray
    high: FloatArray
    # Shape (s,); treatment over control, and Fieller's 95% interval. Where the control isn't sure
    # to be above 0 the ratio is nan and the interval goes to infinity.
    ratio: FloatArray
    ratio_low: FloatArray
    ratio_high: FloatArray
    p_value: FloatArray  # shape (s,); of "both groups have the same"; q is corrected for all rows
    q_value: FloatArray
    differs: BoolArray  # shape (s,); whether q_value is at most alpha
    # Shape (s,); which is called a difference nine times in ten, if the row were the only one that
    # differs.
    least_difference: FloatArray
    alpha: float
    correction: Correction
    reports: tuple[int, int]  # of the control, and of the treatment
    pooled: Pooled  # of both groups together
    # How many times as wide a typical interval is because one may look every day; None: it is for a
    # single look.
    widening: float | None


def sample_ratio(groups: Groups, assigned: float, *, sequential: bool = False) -> SampleRatio:
    """Test whether the groups' sizes are what an assignment by chance gives.

    Of N reports the treatment's are drawn with probability a / (1 + a), a client's all together:
    with D reports of an average report's client (`RepeatedReports.clients`) their number has the
    variance D N a / (1 + a)^2. The test is of that number, as normal; D may be an upper bound, and
    the test is then conservative.

    `assigned`: the ratio a: treatment's clients over the control's; above 0. `sequential`: whether
    one may look every day.
    """
    control, treatment = _sizes(groups)
    total, share = control + treatment, assigned / (1 + assigned)
    repeats = sum(each.repeats.clients * each.counts.total for each in groups) / total
    error = math.sqrt(repeats * total * share * (1 - share))
    looks = AlwaysValid(scale_of(share * (1 - share))) if sequential else FixedSample()
    z = np.array((treatment - total * share) / error)
    p_value = math.exp(looks.log_p(z, np.array(error / total)))
    return SampleRatio(assigned, treatment / control, p_value)


def share_scale(params: RapporParams) -> float:
    """Return the scale of the mixture for shares: by the noise of a bit, and half of all clients.

    `params`: the metric's.
    """
    return scale_of(float(variance_of_one(np.zeros(1), params)[0]) / params.h + _MOST_SCATTER)


def number_scale(window: Window) -> float:
    """Return the scale for a mean, in parts of the range: by the largest mean square of weights.

    `window`: the metric's response.
    """
    of_window = window.cells, window.width, window.chance
    squares = cell_chances(*of_window) @ cell_weights(*of_window) ** 2
    return scale_of(float(squares.max()))


def compare_strings(
    groups: Groups,
    pooled: Decoding,
    candidates: Candidates,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    sequential: bool = False,
) -> Comparison[Decoding]:
    """Compare the shares of the strings that were detected in both groups together.

    `groups`: counts of both, made with the candidates' parameters. `pooled`: of both groups
    together, by whatever method. `candidates`: a list that holds all strings that `pooled`
    detected. `alpha`: level of the rows reported as different. Raises `UndecodableError` if a
    group has no reports, or counts of another shape.

    Notes
    -----
    Both groups' bit rates y_g are fitted with the same weights W, by L = (X W X')^-1 X W, so that
    L (y_2 - y_1) is the difference of their shares. W is 1 / (v_1 + v_2 + tau^2), with the
    sampling variances v_g of the groups' rates and the excess variance tau^2 of the differences:
    unlisted strings set their own bits in both groups, so that they scatter only as far
    as the groups have different ones. Variances also hold how the bits of one report are correlated
    (`correlated_bits`).
    """
    looks = AlwaysValid(share_scale(candidates.params)) if sequential else FixedSample()
    found = pooled.largest_detected()
    names = tuple(candidates.strings[int(index)] for index in found)
    reports = _sizes(groups)
    if not len(found):
        nothing = ShareEstimates(np.empty(0), np.empty(0))
        return _compared("string", names, nothing, nothing, nothing, alpha, correction, reports,
                         pooled, looks)  # fmt: skip
    params = candidates.params
    design = make_design(candidates.positions(found), params)
    bits = [estimate_bits(group.counts, params) for group in groups]
    fits = [fit_selected(each, design, np.arange(len(found)), params) for each in bits]
    kept = np.intersect1d(fits[0].selected, fits[1].selected)
    shares = _fitted_alike(groups, bits, fits, design.matrix[kept], params)
    every = [np.full((2, len(found)), np.nan) for _ in shares]
    for filled, (value, error) in zip(every, shares, strict=True):
        filled[:, kept] = value, error
    control, treatment, difference = (ShareEstimates(*filled) for filled in every)
    return _compared("string", names, control, treatment, difference, alpha, correction, reports,
                     pooled, looks)  # fmt: skip


def _fitted_alike(
    groups: Groups,
    bits: Sequence[BitEstimates],
    fits: Sequence[Fit],
    matrix: SparseMatrix,
    params: RapporParams,
) -> tuple[ShareEstimates, ShareEstimates, ShareEstimates]:
    """Return the shares of control, treatment, and their differences, all by the same weights."""
    rates = [each.rate.ravel() for each in bits]
    sampling, there = [], np.ones(rates[0].shape, dtype=np.bool_)
    for rate, fit, each in zip(rates, fits, bits, strict=True):
        reports = reports_by_row(each)
        there &= reports > 0
        variance = variance_of_one(rate - fit.residuals, params)
        sampling.append(np.divide(variance, reports, out=np.zeros_like(variance), where=there))
    basis = SparseMatrix(sparse.vstack([fits[0].basis[:1], matrix], format="csr"))
    both, differences = sampling[0] + sampling[1], rates[1] - rates[0]
    penalties, excess = np.zeros(basis.shape[0]), 0.0
    for step in range(_REWEIGHTINGS):
        weights = np.where(there, 1.0 / np.where(there, both + excess, 1.0), 0.0)
        weighted = SparseMatrix(basis @ sparse.diags_array(weights))
        gram = (weighted @ basis.T).toarray()
        covariance = np.asarray(linalg.inv(gram), dtype=np.float64)
        residuals = differences - np.asarray(
            basis.T @ (covariance @ np.asarray(weighted @ differences))
        )
        if step < _REWEIGHTINGS - 1:
            excess = estimate_excess_variance(
                weights * residuals, weights, both, basis, covariance, penalties
            )
    found = []
    for rate, own, group, fit, each in zip(rates, sampling, groups, fits, bits, strict=True):
        share: FloatArray = covariance @ np.asarray(weighted @ rate)
        noise = _diagonal(covariance, weighted, own + fit.excess_variance)
        alike = replace(fit, basis=basis, coefficients=share, weights=weights)
        clipped, n_reports = np.clip(share, 0.0, 1.0), group.counts.total
        drawn = group.repeats.sampling_variance(share, n_reports)
        drawn -= clipped * (1 - clipped) / n_reports  # what each resampled report adds already
        more = correlated_bits(alike, each, params, covariance) + drawn
        found.append((share, with_correlation(noise, more), more))
    (first, of_first, more_first), (second, of_second, more_second) = found
    variance = with_correlation(
        _diagonal(covariance, weighted, both + excess), more_first + more_second
    )
    return (
        ShareEstimates(first[1:], np.sqrt(of_first[1:])),
        ShareEstimates(second[1:], np.sqrt(of_second[1:])),
        ShareEstimates((second - first)[1:], np.sqrt(variance[1:])),
    )


def _diagonal(covariance: FloatArray, weighted: SparseMatrix, variance: FloatArray) -> FloatArray:
    inner = (SparseMatrix(weighted @ sparse.diags_array(variance)) @ weighted.T).toarray()
    return np.asarray(np.einsum("ij,jk,ki->i", covariance, inner, covariance, optimize=True))


def compare_categories(
    groups: Groups,
    metric: Metric,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    sequential: bool = False,
) -> Comparison[CategoryDecoding]:
    """Compare the shares of all categories of a metric whose registry lists them.

    `metric`: of type enum, boolean or ordinal. `alpha`: level of the categories that are said to
    differ. Raises `MetricError, DecoderError, UndecodableError` as `decode_categories`.
    """
    pooled = decode_categories(groups.together, metric, alpha=alpha, correction=correction)
    each = (estimate_categories(counts, metric, repeats) for counts, repeats in groups)
    found = [ShareEstimates(own.unbiased, own.std_error) for own in each]
    looks = AlwaysValid(share_scale(metric.params)) if sequential else FixedSample()
    return _of_each("category", pooled.categories, found, groups, pooled, alpha, correction, looks)


def compare_numbers(
    groups: Groups,
    metric: Metric,
    *,
    alpha: float = 0.05,
    correction: Correction = Correction.BH,
    sequential: bool = False,
) -> Comparison[NumberDecoding]:
    """Compare the means, and perhaps the variances, of a metric of numbers.

    `alpha`: level of the statistics that are said to differ. Raises `DecoderError,
    UndecodableError` as `decode_numbers`.
    """
    pooled = decode_numbers(groups.together, metric, alpha=alpha, correction=correction)
    each = (estimate_numbers(counts, metric, repeats) for counts, repeats in groups)
    found = [ShareEstimates(own.unbiased, own.std_error) for own in each]
    looks: SequentialTest = FixedSample()
    if sequential and isinstance(metric.type, NumberType) and isinstance(metric.response, Window):
        size = metric.type.high - metric.type.low
        units = np.array([size, size**2])[: len(pooled.statistics)]  # of a mean, and a variance
        looks = AlwaysValid(number_scale(metric.response) * units)
    return _of_each("statistic", pooled.statistics, found, groups, pooled, alpha, correction, looks)


def _sizes(groups: Groups) -> tuple[int, int]:
    return groups.control.counts.total, groups.treatment.counts.total


def _of_each(
    kind: str,
    names: tuple[str, ...],
    found: Sequence[ShareEstimates],
    groups: Groups,
    pooled: Pooled,
    alpha: float,
    correction: Correction,
    looks: SequentialTest,
) -> Comparison[Pooled]:
    control, treatment = found
    difference = ShareEstimates(
        treatment.value - control.value, np.hypot(treatment.std_error, control.std_error)
    )
    return _compared(kind, names, control, treatment, difference, alpha, correction,
                     _sizes(groups), pooled, looks)  # fmt: skip


def _compared(
    kind: str,
    names: tuple[str, ...],
    control: ShareEstimates,
    treatment: ShareEstimates,
    difference: ShareEstimates,
    alpha: float,
    correction: Correction,
    reports: tuple[int, int],
    pooled: Pooled,
    looks: SequentialTest,
) -> Comparison[Pooled]:
    """Test the differences, and return them with their pooled estimates."""
    error = difference.std_error
    z = difference.value / error
    log_p = np.where(np.isnan(z), 0.0, looks.log_p(z, error))
    log_q = log_q_values(log_p, correction)
    differs = log_q <= math.log(alpha)
    n, count = max(len(names), 1), int(np.count_nonzero(differs))

    def cutoff(differing: int) -> FloatArray:
        """Return the |z| from which on a row differs, if so many do."""
        return looks.critical_z(log_cutoff(differing, n, math.log(alpha), correction), error)

    reach = looks.critical_z(_LOG_ERROR_RATE, error)
    low, high = difference.value + np.outer([-1.0, 1.0], reach * error)
    known = ~np.isnan(z)  # of what isn't, nothing is marked
    found = looks.conditional_interval(
        np.where(known, np.abs(z), 0.0),
        np.where(known, error, 1.0),
        cutoff(count),
        log_cutoff(count, n, _LOG_ERROR_RATE, correction),
    )
    ends = np.sort(found * np.sign(z), axis=0) * error
    low[differs], high[differs] = ends[:, differs]
    # For t - r c, whatever r is, the mixture may have the scale sqrt((1 + r^2)/2): its time is then
    # between those of t and c alone, and its boundary below the larger one.
    wider = [
        looks.critical_z(_LOG_ERROR_RATE, math.sqrt(2) * each.std_error)
        for each in (control, treatment)
    ]
    least = (cutoff(1) - float(special.ndtri(1 - POWER))) * error
    widening = None
    if isinstance(looks, AlwaysValid):
        widening = float(np.nanmedian(reach)) / Z_CONFIDENCE if len(names) else math.nan
    return Comparison(
        kind, names, control, treatment, difference, low, high,
        *ratio_interval(control, treatment, np.maximum(*wider), nonnegative=kind != "statistic"),
        np.exp(log_p), np.exp(log_q), differs, least, alpha, correction, reports,
        pooled, widening,
    )  # fmt: skip


def ratio_interval(
    control: ShareEstimates,
    treatment: ShareEstimates,
    z: FloatArray | float = Z_CONFIDENCE,
    *,
    nonnegative: bool = True,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return treatment over control, and Fieller's (1954) 95% interval; shape (s,) each.

    `control` and `treatment`: with independent normal errors. `z`, shape (s,): standard errors to
    either side. `nonnegative`: whether neither can be below 0, and so no ratio.

    Notes
    -----
    All r for which |t - r c| <= z sqrt(var_t + r^2 var_c): the r between the roots of
    (c^2 - z^2 var_c) r^2 - 2 t c r + t^2 - z^2 var_t, or outside of them where c isn't
    significantly different from 0. Then the ratio itself is nan and the interval ends nowhere.
    """
    (c, of_c), (t, of_t) = control, treatment
    leading = c**2 - (z * of_c) ** 2
    sure = leading > 0
    last = t**2 - (z * of_t) ** 2
    root = np.sqrt(np.maximum((t * c) ** 2 - leading * last, 0.0))
    scale = np.where(leading == 0, np.inf, leading)
    first, second = np.sort([(t * c - root) / scale, (t * c + root) / scale], axis=0)
    ratio = np.divide(t, c, out=np.full(c.shape, np.nan), where=sure)
    if not nonnegative:
        return ratio, np.where(sure, first, -np.inf), np.where(sure, second, np.inf)
    # Outside of two roots of which the first is below 0 there is one range of what can be.
    one_range = ~sure & (first < 0) & (second > 0) & (last > 0)
    low = np.where(sure, np.maximum(first, 0.0), np.where(one_range, second, 0.0))
    return ratio, low, np.where(sure, np.maximum(second, 0.0), np.inf)
