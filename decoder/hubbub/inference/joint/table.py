"""A table's estimated cells -> margins, conditional shares, departures from independence.

However the cells were estimated, they are unbiased and have a covariance; sums and quotients of
them follow. Invariant: nothing here is cut off at 0 before it is added up, because sums of cut-off
estimates are biased upwards.

The test of independence has a distribution that is found by drawing: estimates of an independent
table with these margins go through the same computation. So it is calibrated whatever the noise,
and however many cells there are. Cramer's V is estimated without the noise's own part, which would
otherwise be most of it.

Most cells of a table are smaller than their noise, so there is also a table that is nearer to the
true one, whose cells are drawn towards independence. How far cells are from the product of their
margins is learnt from all of them together: each cell is a draw of a factor, whose distribution is
estimated, times that product (empirical Bayes: Robbins 1956; Koenker and Mizera, Journal of the
American Statistical Association 109, 2014). Invariant: such cells are for looking at and adding up,
not for intervals: they are biased.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy import sparse, special

from hubbub.inference.arrays import BoolArray, FloatArray, SparseMatrix
from hubbub.inference.categories.shares import nearest_distribution
from hubbub.inference.repeated_reports import Estimand, RepeatedReports
from hubbub.inference.testing.multiple_testing import (
    Correction,
    ShareInterval,
    log_q_values,
    share_interval,
)

LEAST_Z = 5.0
"""Standard errors that a value's share must be above 0 for shares among its clients."""

# Repetitions of an interval's end, each with the error at the last one.
_END_STEPS = 4
# Keeps quotients finite; no total or variance that is shown is so small.
_TINY = 1e-9
# Least part of a variance that is left without the drawing of clients, as for strings.
_LEAST_OWN = 0.1


def about(
    covariance: FloatArray, shares: FloatArray, n_reports: float, repeats: RepeatedReports
) -> FloatArray:
    """Return the covariance about whatever shares are asked for, from that about a population's.

    `covariance` has shape (n, n). `shares`, shape (n,): the estimates.
    """
    if repeats.estimand is Estimand.POPULATION:
        return covariance
    possible = np.maximum(shares, 0.0)
    possible = possible / max(1.0, float(possible.sum()))
    of_people = replace(repeats, estimand=Estimand.POPULATION)
    drawn = of_people.sampling_covariance(possible, n_reports)
    most = (1 - _LEAST_OWN) * np.diagonal(covariance)
    part = (most / np.maximum(np.diagonal(drawn), _TINY * most)).min(initial=1.0)
    return np.asarray(covariance - part * drawn)


class FieldLabels(NamedTuple):
    """A field, and its values as results show them."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JointEstimates:
    """Estimated shares of the n cells of a table; the last field's values change fastest."""

    fields: tuple[FieldLabels, ...]  # 2 or 3
    # Shape (n,); may fall outside [0, 1]; adds up to less than 1 if values of a field are left out.
    unbiased: FloatArray
    covariance: FloatArray  # shape (n, n)
    # Shape (n, n); of `unbiased` about a population's shares, whatever is asked for: fields that
    # are independent there are only nearly so in the reports.
    scatter: FloatArray

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of the fields' values."""
        return tuple(len(field.labels) for field in self.fields)

    @property
    def cells(self) -> FloatArray:
        """`unbiased` in the table's shape."""
        return self.unbiased.reshape(self.shape)

    @property
    def total(self) -> float:
        """Estimated share of all cells."""
        return float(self.unbiased.sum())

    def margin(self, *axes: int) -> JointEstimates:
        """Return the table of some fields, in ascending order, summed over the others."""
        shape, d = self.shape, len(self.shape)
        others = tuple(axis for axis in range(d) if axis not in axes)
        unbiased = self.cells.sum(axis=others).ravel()
        twice = self.covariance.reshape(*shape, *shape)
        covariance = twice.sum(axis=(*others, *(d + axis for axis in others)))
        scatter = self.scatter.reshape(*shape, *shape)
        scatter = scatter.sum(axis=(*others, *(d + axis for axis in others)))
        size, fields = len(unbiased), tuple(self.fields[axis] for axis in axes)
        return JointEstimates(
            fields, unbiased, covariance.reshape(size, size), scatter.reshape(size, size)
        )

    def draw(self, shares: FloatArray, rng: np.random.Generator, n_draws: int) -> FloatArray:
        """Draw estimates as they would come out if these were the true shares; shape (draws, n)."""
        size = len(shares)
        ridge = _RIDGE * float(np.trace(self.scatter)) / size  # a known total has no scatter
        root = np.linalg.cholesky(self.scatter + ridge * np.eye(size))
        return np.asarray(shares + rng.standard_normal((n_draws, size)) @ root.T)

    def covariance_with(self, axis: int) -> FloatArray:
        """Return each cell's covariance with the share of its own value of a field; shape (n,)."""
        shape = self.shape
        others = tuple(1 + a for a in range(len(shape)) if a != axis)
        sums = self.covariance.reshape(-1, *shape).sum(axis=others)
        own = np.indices(shape)[axis].ravel()
        return np.asarray(sums[np.arange(len(own)), own])

    @property
    def std_error(self) -> FloatArray:
        """Standard errors of `unbiased`, shape (n,)."""
        return np.sqrt(np.diagonal(self.covariance))

    def intervals(self) -> ShareInterval:
        """Return 95% intervals of the cells, each of shape (n,)."""
        return share_interval(self.unbiased, self.std_error)

    def constrained(self) -> FloatArray:
        """Return the nearest cells that are at least 0 and add up to the total; shape (n,)."""
        total = float(np.clip(self.total, _TINY, 1.0))
        variance = np.diagonal(self.covariance) / total**2
        return total * nearest_distribution(self.unbiased / total, variance)


class Conditional(NamedTuple):
    """Shares of one field's values among the clients who have a value of another."""

    given: int  # which fields
    of: int
    # Shape (values given, values of); with 95% intervals; nan where hardly anybody is known to have
    # the value that is given.
    share: FloatArray
    low: FloatArray
    high: FloatArray


def conditionals(estimates: JointEstimates) -> tuple[Conditional, ...]:
    """Return the shares of each field's values given each value of each other field."""
    axes = range(len(estimates.shape))
    found = []
    for first, second in itertools.combinations(axes, 2):
        pair = estimates.margin(first, second)
        by_row, by_column = conditional(pair, 0), conditional(pair, 1)
        found += [
            Conditional(first, second, *by_row),
            Conditional(second, first, *(values.T for values in by_column)),
        ]
    return tuple(found)


def conditional(pair: JointEstimates, given: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return each cell's share of its row (given 0) or column (1), and 95% intervals.

    `pair`: of two fields. `given`: the axis among whose value's clients shares are given: 0 or 1.
    Returns `share, low, high`, shape (rows, columns).

    Notes
    -----
    The quotient rho of a cell y and its row a is where y - rho a is 0, and that is a weighted sum
    of estimates with variance V(rho) = Var(y) - 2 rho Cov(y, a) + rho^2 Var(a). So
    (y / a - rho) / (sqrt(V(rho)) / a) is about standard normal at the true rho (Fieller 1954), and
    each end of the interval is one of a share with its standard error at that end, found by
    repetition; shares near 0 and 1 are treated as all shares are (`share_interval`).
    """
    margin = pair.margin(given)
    of_cell = np.indices(pair.shape)[given].ravel()
    base, base_variance = margin.unbiased[of_cell], np.diagonal(margin.covariance)[of_cell]
    known = base > LEAST_Z * np.sqrt(base_variance)
    safe = np.where(known, base, 1.0)
    share = pair.unbiased / safe
    variance, shared = np.diagonal(pair.covariance), pair.covariance_with(given)

    def error_at(rho: FloatArray) -> FloatArray:
        contrast = variance - 2 * rho * shared + rho**2 * base_variance
        return np.asarray(np.sqrt(np.maximum(contrast, _TINY * variance)) / safe)

    low = high = np.clip(share, 0.0, 1.0)
    for _ in range(_END_STEPS):
        low, high = (
            share_interval(share, error_at(low)).low,
            share_interval(share, error_at(high)).high,
        )
    found = (np.where(known, values, np.nan).reshape(pair.shape) for values in (share, low, high))
    return next(found), next(found), next(found)


# A cell may be 0, or a twentieth to 20 times what independence expects: steps of 16%, each blurred
# by a tenth (`_SPREAD`), leave no gaps between them.
_FACTORS = np.concatenate([[0.0], np.geomspace(0.05, 20.0, 41)])
_SPREAD = 0.1
# EM for 42 weights.
_EM_STEPS = 60
# Newton's steps for the margins end where these are met to 1e-9, far below any error; the slope is
# the line search's usual one (Nocedal and Wright, section 3.1).
_ROUNDS, _CLOSE, _SLOPE = 50, 1e-9, 1e-4
# Keep the margins' equations solvable where cells have no variance or margins depend on each other.
_LEAST_SPREAD, _RIDGE = 1e-6, 1e-9


def shrunk_cells(estimates: JointEstimates) -> FloatArray:
    """Return cells that are at least 0, whose margins are the margins' constrained shares.

    Returns an array of shape (n,).

    Notes
    -----
    With m the product of the margins, a cell is drawn from a mixture of normal distributions with
    means g m, at most the least margin, and deviations a tenth of that; g runs over a grid, and 0.
    Its estimate adds the noise's variance. The mixture's weights are the most likely ones (EM), and
    a cell becomes its mean given its estimate. The table then gets its margins again, at the
    expense of the cells that are known least (`fit_margins`).
    """
    shape = estimates.shape
    margins = [estimates.margin(axis).constrained() for axis in range(len(shape))]
    total = float(margins[0].sum())
    product, least = product_of(margins, total), reduce(np.minimum.outer, margins)
    values = np.minimum(product[..., None] * _FACTORS, least[..., None]).reshape(-1, len(_FACTORS))
    noise = np.diagonal(estimates.covariance)[:, None]
    prior = (_SPREAD * values) ** 2
    off = estimates.unbiased[:, None] - values
    log_density = -(off**2) / (2 * (noise + prior)) - np.log(noise + prior) / 2
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weights = np.full(len(_FACTORS), 1 / len(_FACTORS))
    for _ in range(_EM_STEPS):
        chances = density * weights
        weights = (chances / chances.sum(axis=1, keepdims=True)).mean(axis=0)
    chances = density * weights
    chances /= chances.sum(axis=1, keepdims=True)
    means = values + off * prior / (noise + prior)
    found = (chances * means).sum(axis=1)
    scatter = noise * prior / (noise + prior) + (means - found[:, None]) ** 2
    uncertain = (chances * scatter).sum(axis=1)
    return fit_margins(found.reshape(shape), uncertain.reshape(shape), margins).ravel()


def product_of(margins: list[FloatArray], total: float) -> FloatArray:
    """Return the table of these margins whose fields are independent; a margin sums to `total`."""
    table = reduce(np.multiply.outer, margins)
    return np.asarray(table / total ** (len(margins) - 1))


def fit_margins(table: FloatArray, variance: FloatArray, margins: list[FloatArray]) -> FloatArray:
    """Return the table nearest to another that is nowhere below 0 and has these margins.

    Nearest: with the least sum of squared differences, each over its cell's variance.

    Notes
    -----
    Such a table is max(0, t + v (l_i + m_j)), with a multiplier for each row and column (and
    layer), of which the dual problem is concave, smooth and small: Newton's method takes a handful
    of steps, each halved until it is an ascent.
    """
    wanted, start = np.concatenate(margins), np.maximum(table, 0.0)
    ends = np.cumsum(table.shape)[:-1]
    largest = float(variance.max()) or 1.0
    spread = np.maximum(variance / largest, _LEAST_SPREAD)

    def cells(multipliers: FloatArray) -> FloatArray:
        added = spread * reduce(np.add.outer, np.split(multipliers, ends))
        return np.asarray(np.maximum(start + added, 0.0))

    def dual(multipliers: FloatArray) -> float:
        return float(multipliers @ wanted - (cells(multipliers) ** 2 / (2 * spread)).sum())

    ridge = _RIDGE * float(np.diag(_common(spread)).mean()) * np.eye(len(wanted))
    multipliers = np.zeros(len(wanted))
    for _ in range(_ROUNDS):
        found = cells(multipliers)
        lacking = wanted - np.diag(_common(found))
        if np.abs(lacking).max() < _CLOSE:
            break
        step = np.linalg.solve(_common(spread * (found > 0)) + ridge, lacking)
        before, slope = dual(multipliers), float(lacking @ step)
        while dual(multipliers + step) < before + _SLOPE * slope and slope > _CLOSE**2:
            step, slope = step / 2, slope / 2
        multipliers = multipliers + step
    return cells(multipliers)


def _common(table: FloatArray) -> FloatArray:
    """Return what any two sums of a table's margins have in common; on the diagonal the sums."""
    every = range(table.ndim)

    def block(one: int, other: int) -> FloatArray:
        others = tuple(axis for axis in every if axis not in (one, other))
        found = table.sum(axis=others)
        return np.diag(found) if one == other else found if one < other else found.T

    return np.block([[block(one, other) for other in every] for one in every])


DRAWS = 499
"""Draws of the independent table: the least p-value is 1 / 500."""

# Any fixed number: the same counts give the same p-value.
_SEED = 20_140_815
# A quotient's error is normal if its denominator is known to an eighth; rarer values are put
# together.
_WELL_KNOWN_Z = 8.0
# Keeps variances and totals above rounding; what is compared is far larger.
_LEAST = 1e-6


class Residuals(NamedTuple):
    """How much larger cells are than if fields were independent."""

    expected: FloatArray  # shape (n,); products of the margins
    residual: FloatArray  # shape (n,); estimated share less that, and its standard error
    std_error: FloatArray
    # Shape (n,); of "it is as if they were independent", two-sided, corrected for the number of
    # cells (BH).
    q_value: FloatArray


def residuals(estimates: JointEstimates) -> Residuals:
    """Return the departures of all cells from independence.

    Notes
    -----
    A residual is r = y - s^(1-d) prod_f m_f for a cell y, the d margins m_f of its values, and the
    total s. To first order its variance is that of y - sum_f c_f m_f, with c_f the product of the
    other margins; the total's own error, 0 where all values are listed, is left out.
    """
    shape, axes = estimates.shape, range(len(estimates.shape))
    margins = [estimates.margin(axis) for axis in axes]
    places = [values.ravel() for values in np.indices(shape)]
    own = [margins[axis].unbiased[places[axis]] for axis in axes]
    scale = estimates.total ** (1 - len(shape))
    expected = scale * np.prod(own, axis=0)
    slopes = [scale * np.prod([own[g] for g in axes if g != f], axis=0) for f in axes]
    variance = np.diagonal(estimates.covariance).copy()
    for f in axes:
        variance += slopes[f] ** 2 * np.diagonal(margins[f].covariance)[places[f]]
        variance -= 2 * slopes[f] * estimates.covariance_with(f)
    for f, g in itertools.combinations(axes, 2):
        covariance = estimates.margin(f, g).covariance
        twice = covariance.reshape(shape[f], shape[g], shape[f], shape[g])
        between = np.einsum("ijkl->il", twice)
        variance += 2 * slopes[f] * slopes[g] * between[places[f], places[g]]
    least = _LEAST * np.diagonal(estimates.covariance)
    error = np.sqrt(np.maximum(variance, least))
    residual = estimates.unbiased - expected
    log_p = np.log(2.0) + special.log_ndtr(-np.abs(residual) / error)
    return Residuals(expected, residual, error, np.exp(log_q_values(log_p, Correction.BH)))


@dataclass(frozen=True, slots=True)
class Independence:
    """Whether some fields are independent, and how strongly two go together."""

    fields: tuple[str, ...]
    p_value: float  # of "they are independent"; at least 1 / (draws + 1)
    draws: int
    # For two fields, from 0 (independent) to 1, with a 95% interval; nan for three, and where too
    # few values are known well.
    cramers_v: float
    v_low: float
    v_high: float
    # The number of values of each field: rare ones, which add little, count as one.
    v_values: tuple[int, ...]


def assess_independence(estimates: JointEstimates, draws: int = DRAWS) -> Independence:
    """Test whether all fields of a table are independent of each other.

    Notes
    -----
    T = sum p_ij (y_ij - p_ij)^2 with p the product of the margins: residuals count where clients
    are expected. Margins are unbiased ones, though some may be below 0: cut off at 0 they would
    hold more of their noise in draws than in estimates, and .07 would be rejected at .05. The
    p-value is (1 + #{T* >= T}) / (1 + draws), over draws of an independent table with the margins'
    constrained shares. They come from a fixed seed, so that the same reports give the same
    result.
    """
    shares = [estimates.margin(axis).constrained() for axis in range(len(estimates.shape))]
    null = product_of(shares, float(shares[0].sum())).ravel()
    drawn = estimates.draw(null, np.random.default_rng(_SEED), draws)
    found, *others = _statistics(np.vstack([estimates.unbiased, drawn]), estimates.shape)
    p_value = (1 + sum(other >= found for other in others)) / (1 + draws)
    strength: tuple[float, float, float, tuple[int, ...]] = (np.nan, np.nan, np.nan, ())
    if len(shares) == 2:
        strength = cramers_v(estimates)
    return Independence(tuple(f.name for f in estimates.fields), p_value, draws, *strength)


def _statistics(tables: FloatArray, shape: tuple[int, ...]) -> list[float]:
    """Return T of each of some tables, scaled to a total of 1."""
    found = []
    for cells in tables:
        table = cells.reshape(shape) / max(float(cells.sum()), _LEAST)
        margins = [
            table.sum(axis=tuple(a for a in range(len(shape)) if a != axis))
            for axis in range(len(shape))
        ]
        product = product_of(margins, 1.0)
        found.append(float((product * (table - product) ** 2).sum()))
    return found


def cramers_v(pair: JointEstimates) -> tuple[float, float, float, tuple[int, ...]]:
    """Return Cramer's V of two fields, its 95% interval, and how many values it is of.

    Values whose share isn't at least 8 standard errors are put together.

    Notes
    -----
    V^2 = phi^2 / (min(rows, columns) - 1), phi^2 = sum r_ij^2 / (a_i b_j) with residuals r. Squares
    of estimates are too large by their variance, which is taken off. With g the gradient of phi^2
    and W the diagonal of 1 / (a_i b_j), the variance is g' S g for covariance S, in which squares
    of noise count once too often: less 2 tr((W S)^2), and at least that.
    """
    pooling = [_pooled(pair.margin(axis)) for axis in (0, 1)]
    rows, columns = (len(groups) for groups in pooling)
    if min(rows, columns) < 2:
        return np.nan, np.nan, np.nan, (rows, columns)
    groups = (sparse.csr_array(each.astype(np.float64)) for each in pooling)
    both = SparseMatrix(sparse.kron(next(groups), next(groups)))
    table = np.asarray(both @ pair.unbiased).reshape(rows, columns) / pair.total
    covariance = np.asarray(both @ np.asarray(both @ pair.covariance).T) / pair.total**2
    twice = covariance.reshape(rows, columns, rows, columns)
    a, b = table.sum(axis=1), table.sum(axis=0)
    product = np.outer(a, b)
    variance = np.diagonal(covariance).reshape(rows, columns)
    with_row = np.einsum("ijik->ij", twice)
    with_column = np.einsum("ijkj->ij", twice)
    of_rows, of_columns = with_row.sum(axis=1), with_column.sum(axis=0)
    between = np.einsum("ijkl->il", twice)
    noise = variance + b**2 * of_rows[:, None] + a[:, None] ** 2 * of_columns
    noise += 2 * product * between - 2 * b * with_row - 2 * a[:, None] * with_column
    phi_squared = float((((table - product) ** 2 - noise) / product).sum())
    squares = table**2 - variance
    gradient = 2 * table / product
    gradient -= ((squares / b).sum(axis=1) / a**2)[:, None] + (squares / a[:, None]).sum(
        axis=0
    ) / b**2
    flat, weight = gradient.ravel(), 1 / product.ravel()
    least = 2 * float(weight @ covariance**2 @ weight)
    error = np.sqrt(max(float(flat @ covariance @ flat) - least, 0.0) + least)
    most = min(rows, columns) - 1
    low, high = share_interval(np.array([phi_squared / most]), np.array([error / most]))
    estimate = np.sqrt(np.clip(phi_squared / most, 0.0, 1.0))
    return float(estimate), float(np.sqrt(low[0])), float(np.sqrt(high[0])), (rows, columns)


def _pooled(margin: JointEstimates) -> BoolArray:
    """Return which values are put together so that all are well known; shape (groups, values)."""

    def well_known(group: BoolArray) -> bool:
        error = np.sqrt(max(float(group @ margin.covariance @ group), 0.0))
        return bool(group @ margin.unbiased >= _WELL_KNOWN_Z * error)

    order = np.argsort(-margin.unbiased, kind="stable")
    z = margin.unbiased / margin.std_error
    known = order[z[order] >= _WELL_KNOWN_Z]
    groups = list(np.eye(len(order), dtype=np.bool_)[known])
    others = ~np.isin(np.arange(len(order)), known)
    # The rest may be below 0: it joins the rarest values until their sum is well known.
    while others.any():
        if well_known(others) or not groups:
            groups.append(others)
            break
        others = others | groups.pop()
    return np.array(groups)
