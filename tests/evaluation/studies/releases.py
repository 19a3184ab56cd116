"""Errors of the central mechanisms, beside what textbooks state (docs/understand/mechanisms.md).

Mechanisms are called as `hubbub-release` calls them. Their noise is drawn from the operating
system, so that figures differ a little from run to run; data are seeded. One user has one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import click
import numpy as np
from scipy import optimize, stats

from evaluation.measured_table import MeasuredTable
from evaluation.studies.study import show, shown
from hubbub.inference import FloatArray
from hubbub.release.mechanisms.counts import (
    Mechanism,
    bounded_mean,
    bounded_sum,
    count,
    histogram,
    lattice,
    threshold,
    thresholded_histogram,
)
from hubbub.release.mechanisms.selection import (
    aggregate_mean,
    aggregate_median,
    aggregate_mode,
    lead_threshold,
    median_by_test,
    most_common,
    quantile,
    stable_mode,
)
from hubbub.release.noise import gaussian_scale, laplace_scale

ONE = Fraction(1)
TINY = Fraction("1e-6")
OPTIONS = 2**16
CORRELATION = 0.6

Cells = Sequence[object]


def numbers(mechanism: Mechanism[Any], data: object, runs: int) -> FloatArray:
    """Return the only number of each of several releases."""
    return np.array([float(mechanism(data)[0].value) for _ in range(runs)])


def laplace_tail(distance: int, scale: float) -> float:
    """Return P(Z >= distance) of discrete Laplace noise; a^t / (1 + a) for t >= 1."""
    a = math.exp(-1 / scale)
    if distance >= 1:
        return math.exp(-distance / scale) / (1 + a)
    return 1 - math.exp(-(1 - distance) / scale) / (1 + a)


def root_mean_square(errors: FloatArray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def laplace_rows(runs: int) -> Iterable[Cells]:
    for epsilon in ("0.1", "0.5", "1", "2"):
        mechanism = count(rows_per_user=1, epsilon=Fraction(epsilon))
        errors = numbers(mechanism, 0, runs)
        radius = mechanism(0)[0].radius
        a = math.exp(-float(epsilon))
        yield (
            epsilon,
            root_mean_square(errors),
            math.sqrt(2 * a) / (1 - a),
            math.sqrt(2) / float(epsilon),
            radius,
            math.log(20) / float(epsilon),
            np.mean(np.abs(errors) <= radius),
        )


def gaussian_delta(scale: float, epsilon: float) -> float:
    """Return the delta of continuous Gaussian noise for a sensitivity of 1 (Balle, Wang 2018)."""
    half, far = 0.5 / scale, epsilon * scale
    return float(stats.norm.cdf(half - far) - math.exp(epsilon) * stats.norm.cdf(-half - far))


def gaussian_rows(runs: int) -> Iterable[Cells]:
    delta = float(TINY)
    for epsilon in (0.5, 1.0, 4.0, 10.0, 16.0):
        scale, _ = gaussian_scale(1.0, Fraction(epsilon), TINY)
        mechanism = count(rows_per_user=1, epsilon=Fraction(epsilon), delta=TINY)
        optimum = optimize.brentq(lambda s, e=epsilon: gaussian_delta(s, e) - delta, 0.05, 100.0)
        textbook = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        yield (
            f"{epsilon:g}",
            root_mean_square(numbers(mechanism, 0, runs)),
            scale,
            optimum,
            textbook,
            f"{gaussian_delta(textbook, epsilon):.2g}",
        )


def sum_rows(runs: int) -> Iterable[Cells]:
    """1,000 values, uniform between the bounds."""
    bounds = lattice(0.0, 10.0)
    values = np.random.default_rng(1).uniform(0, 10, 1_000)
    for name, mechanism, truth, formula in (
        ("sum", bounded_sum(bounds, rows_per_user=1, epsilon=ONE), values.sum(), math.sqrt(2) * 10),
        (
            "mean",
            bounded_mean(bounds, rows_per_user=1, epsilon=ONE),
            values.mean(),
            math.sqrt(2) * 2 * 5 / 1_000,
        ),
    ):
        rows = [mechanism(values)[0] for _ in range(runs)]
        errors = np.array([float(row.value) - truth for row in rows])
        radii = np.array([row.radius for row in rows])
        held = np.mean(np.abs(errors) <= radii)
        yield name, root_mean_square(errors), formula, radii.mean(), held


def selection_rows(runs: int) -> Iterable[Cells]:
    """200 options, of which the best few lead by a gap."""
    options = [str(option) for option in range(200)]
    for best, gap in ((1, 5), (1, 7), (1, 9), (3, 15), (3, 21), (3, 27)):
        mechanism = most_common(options, best, rows_per_user=1, epsilon=ONE)
        keys = [option for option in options[:best] for _ in range(gap)]
        right = set(options[:best])
        wrong = sum({row.value for row in mechanism(keys)} != right for _ in range(runs))
        bound = min(1.0, best * (len(options) - best) * math.exp(-gap / best))
        yield best, gap, wrong / runs, bound


def median_rows(runs: int) -> Iterable[Cells]:
    rng = np.random.default_rng(2)
    populations: tuple[tuple[str, float, float, Callable[[], FloatArray], tuple[float, ...]], ...]
    populations = (
        ("1,001 normal", -100, 100, lambda: rng.normal(0, 1, 1_001), (0.05, 0.2)),
        ("10,001 lognormal", 0, 10_000, lambda: rng.lognormal(3, 1, 10_001), (0.1, 0.2, 0.5)),
    )
    for name, low, high, draw, widths in populations:
        tables = [draw() for _ in range(runs)]
        exact = quantile(low, high, Fraction(1, 2), options=OPTIONS, rows_per_user=1, epsilon=ONE)
        errors = [abs(float(exact(t)[0].value) - np.median(t)) for t in tables]
        ranks = math.log(2 * OPTIONS)  # 2 / epsilon ln(2 options) in scores, half that in ranks
        apart = np.median([np.sort(t)[len(t) // 2 + round(ranks)] - np.median(t) for t in tables])
        yield name, "exponential", "1.00", np.median(errors), apart
        for width in widths:
            tested = median_by_test(
                lattice(low, high), width, rows_per_user=1, epsilon=ONE, delta=TINY
            )
            released = [(rows[0], t) for t in tables if (rows := tested(t))]
            errors = [abs(float(row.value) - np.median(t)) for row, t in released]
            share = f"{len(released) / runs:.2f}"
            found = np.median(errors) if errors else math.nan
            yield name, f"PTR, {width:g}", share, found, 2 * math.log(2) * width


def threshold_rows(runs: int) -> Iterable[Cells]:
    delta, draws = Fraction("1e-3"), 50 * runs
    singletons = [str(key) for key in range(draws)]
    for epsilon in ("0.5", "1", "2", "3"):
        scale = laplace_scale(1, Fraction(epsilon))
        mechanism = thresholded_histogram(rows_per_user=1, epsilon=Fraction(epsilon), delta=delta)
        least = threshold(scale, 1, delta)
        textbook = math.ceil(math.log(1 / delta) / float(epsilon))
        noisy = [
            row.value
            for row in histogram(singletons, rows_per_user=1, epsilon=Fraction(epsilon))(singletons)
        ]
        yield (
            epsilon,
            least,
            f"{laplace_tail(least - 1, scale):.2g}",
            f"{len(mechanism(singletons)) / draws:.2g}",
            textbook,
            f"{laplace_tail(textbook - 1, scale):.2g}",
            f"{np.mean(np.array(noisy) >= textbook):.2g}",
        )


def stable_rows(runs: int) -> Iterable[Cells]:
    _, least = lead_threshold(1, ONE, TINY)
    _, replaced = lead_threshold(2, ONE, TINY)
    mode = stable_mode(rows_per_user=1, epsilon=ONE, delta=TINY)
    of_blocks = aggregate_mode(epsilon=ONE, delta=TINY)
    for scales in range(5):
        lead, blocks_lead = least + scales, replaced + 2 * scales
        keys, estimates = ["a"] * lead, np.ones(blocks_lead)
        yield (
            scales,
            lead,
            sum(len(mode(keys)) for _ in range(runs)) / runs,
            blocks_lead,
            sum(len(of_blocks(estimates)) for _ in range(runs)) / runs,
            1 - math.exp(-scales) / 2,
        )


def block_correlations(values: FloatArray, blocks: int, rng: np.random.Generator) -> FloatArray:
    """Return each block's correlation, of users that are in one block each."""
    block = rng.integers(0, blocks, len(values))
    x, y = values.T
    n, sx, sy, sxx, syy, sxy = (
        np.bincount(block, weights=w, minlength=blocks)
        for w in (np.ones_like(x), x, y, x * x, y * y, x * y)
    )
    with np.errstate(all="ignore"):
        found = (n * sxy - sx * sy) / np.sqrt((n * sxx - sx**2) * (n * syy - sy**2))
    return np.nan_to_num(found, nan=0.0)


def aggregate_rows(runs: int) -> Iterable[Cells]:
    """Correlations of 20,000 users, drawn anew for each run from normal values."""
    rng, n = np.random.default_rng(3), 20_000
    median = aggregate_median(-1, 1, options=2_001, epsilon=ONE)
    for blocks in (25, 50, 100, 200, 400, 1_000):
        mean = aggregate_mean(lattice(-1, 1), blocks=blocks, epsilon=ONE)
        found = []
        for _ in range(runs):
            z = rng.normal(size=(n, 2))
            rest = math.sqrt(1 - CORRELATION**2)
            values = np.column_stack((z[:, 0], CORRELATION * z[:, 0] + rest * z[:, 1]))
            estimates = block_correlations(values, blocks, rng)
            whole = block_correlations(values, 1, rng)[0]
            released = [float(m(estimates)[0].value) for m in (median, mean)]
            found.append([*(r - whole for r in released), *(r - CORRELATION for r in released)])
        of_whole_median, of_whole_mean, of_median, of_mean = map(
            root_mean_square, np.array(found).T
        )
        noise = 2 * math.sqrt(2) / blocks
        yield blocks, of_whole_median, of_median, of_whole_mean, of_mean, noise


TABLES: tuple[tuple[str, Callable[[int], Iterable[Cells]], float, tuple[str, ...]], ...] = (
    (
        "Laplace noise, of a count: root mean square error and 95% radius",
        laplace_rows, 5,
        ("epsilon", "error", "discrete law", "continuous", "radius", "continuous", "within radius"),
    ),
    (
        "Gaussian noise, of a count, delta 1e-6: scales, and the textbook's true delta",
        gaussian_rows, 5,
        ("epsilon", "error", "scale", "optimum", "textbook", "its delta"),
    ),
    (
        "Sum and mean of 1,000 values from 0 to 10, epsilon 1",
        sum_rows, 5,
        ("", "root mean square error", "formula", "radius", "within radius"),
    ),
    (
        "Mode and top 3 of 200 options, epsilon 1: failures by how many rows the best lead",
        selection_rows, 1,
        ("best", "lead", "failures", "bound"),
    ),
    (
        "Medians, epsilon 1: median absolute error (propose-test-release: delta 1e-6, by width)",
        median_rows, 0.25,
        ("values", "mechanism", "released", "error", "formula"),
    ),
    (
        "Keys of one user, released although delta is .001: thresholds, true and observed deltas",
        threshold_rows, 1,
        ("epsilon", "threshold", "delta", "observed", "textbook's", "its delta", "observed"),
    ),
    (
        "Stable mode, epsilon 1, delta 1e-6: released, by scales of the lead over the threshold",
        stable_rows, 1,
        ("scales", "lead, rows", "released", "lead, blocks", "released", "bound"),
    ),
    (
        "Correlation of 20,000 users, epsilon 1: root mean square error from theirs and from all's",
        aggregate_rows, 0.25,
        ("blocks", "median: theirs", "all's", "mean: theirs", "all's", "mean's noise"),
    ),
)  # fmt: skip
"""Title, rows by runs, what runs are multiplied by, headings."""


@click.command("releases")
@click.option(
    "--runs",
    default=2_000,
    show_default=True,
    type=click.IntRange(10),
    help="Releases a figure; five times as many of counts and sums, a quarter of medians and "
    "correlations.",
)
def main(runs: int) -> None:
    """Print what central mechanisms' errors are, beside what formulas and textbooks say."""
    for title, rows, factor, headings in TABLES:
        cells = tuple(tuple(map(shown, row)) for row in rows(round(runs * factor)))
        show(MeasuredTable(title, headings, cells))
        click.echo()
