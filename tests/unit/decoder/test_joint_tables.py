"""Tables of fields: margins, conditional shares, departures, and the table that is plotted."""

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as arrays

from hubbub.inference import (
    FloatArray,
    assess_independence,
    conditional,
    cramers_v,
    product_of,
    residuals,
    shrunk_cells,
)
from unit.decoder.joint_tables import draw_table, known_table

TABLE: FloatArray = np.array([[0.30, 0.10, 0.05], [0.05, 0.20, 0.30]])
CUBE: FloatArray = np.arange(1, 13, dtype=np.float64).reshape(2, 3, 2) / 78
shapes = st.tuples(st.integers(2, 4), st.integers(2, 4))
tables = shapes.flatmap(
    lambda shape: arrays.arrays(np.float64, shape, elements=st.floats(0.01, 1.0))
).map(lambda table: table / table.sum())


def test_margins_are_sums_with_the_covariance_of_sums():
    found = draw_table(CUBE, 10_000, np.random.default_rng(1))
    for axes in ((0,), (2,), (0, 1), (1, 2)):
        others = tuple(axis for axis in range(3) if axis not in axes)
        margin = found.margin(*axes)
        cells = found.cells.sum(axis=others)
        adding = np.zeros((cells.size, CUBE.size))
        for cell, values in enumerate(np.ndindex(CUBE.shape)):
            row = np.ravel_multi_index([values[axis] for axis in axes], cells.shape)
            adding[row, cell] = 1
        np.testing.assert_allclose(margin.unbiased, cells.ravel())
        np.testing.assert_allclose(
            margin.covariance, adding @ found.covariance @ adding.T, atol=1e-15
        )
        assert [field.name for field in margin.fields] == [found.fields[a].name for a in axes]


@given(tables)
def test_conditional_shares_of_a_known_table_are_its_quotients(table):
    found = known_table(table)
    by_row = conditional(found, 0)
    by_column = conditional(found, 1)
    np.testing.assert_allclose(by_row[0], table / table.sum(axis=1, keepdims=True), atol=1e-4)
    np.testing.assert_allclose(by_column[0], table / table.sum(axis=0), atol=1e-4)
    for share, low, high in (by_row, by_column):
        assert (low <= share + 1e-12).all()
        assert (share - 1e-12 <= high).all()


def test_intervals_of_conditional_shares_are_fiellers_away_from_0_and_1():
    """Their ends solve (y - rho a)^2 = z^2 Var(y - rho a)."""
    found = draw_table(TABLE, 4_000, np.random.default_rng(3))
    _, low, high = conditional(found, 0)
    twice = found.covariance.reshape(2, 3, 2, 3)
    y, a = found.cells[1, 1], found.cells[1].sum()
    for end in (low[1, 1], high[1, 1]):
        weights = np.full(3, -end)
        weights[1] += 1
        error = np.sqrt(weights @ twice[1, :, 1, :] @ weights)
        assert abs(y - end * a) / error == pytest.approx(1.96, abs=0.002)


def test_conditional_shares_of_tiny_groups_are_unknown():
    found = known_table(TABLE, variance=0.003)  # the first row is 4.7 standard errors above 0
    share, low, high = conditional(found, 0)
    assert np.isnan([share[0], low[0], high[0]]).all()
    assert np.isnan(share).all(axis=1).tolist() == [True, False]


@pytest.mark.parametrize("table", [TABLE, CUBE], ids=["two fields", "three fields"])
def test_residuals_have_the_errors_that_repetitions_show(table):
    """Standard deviations over 2,000 draws; a false alarm has probability below 1e-6 (z of 12)."""
    found = draw_table(table, 200_000, np.random.default_rng(4))
    expected = residuals(found)
    drawn = found.draw(table.ravel(), np.random.default_rng(5), 2_000)
    departures = []
    for cells in drawn:
        cube = cells.reshape(table.shape)
        margins = [
            cube.sum(axis=tuple(a for a in range(cube.ndim) if a != axis))
            for axis in range(cube.ndim)
        ]
        departures.append((cube - product_of(margins, float(cells.sum()))).ravel())
    error = np.std(departures, axis=0)
    z = (error / expected.std_error - 1) * np.sqrt(2 * 2_000)
    assert np.abs(z).max() < 12
    mean = np.mean(departures, axis=0)
    truth = table - product_of(
        [
            table.sum(axis=tuple(a for a in range(table.ndim) if a != axis))
            for axis in range(table.ndim)
        ],
        1.0,
    )
    np.testing.assert_allclose(mean, truth.ravel(), atol=6 * error.max() / np.sqrt(2_000))


def test_cramers_v_of_a_known_table_is_the_textbooks():
    rows, columns = TABLE.sum(axis=1), TABLE.sum(axis=0)
    product = np.outer(rows, columns)
    phi = float(((TABLE - product) ** 2 / product).sum())
    value, low, high, values = cramers_v(known_table(TABLE))
    assert value == pytest.approx(np.sqrt(phi), rel=1e-4)
    assert low < value < high
    assert values == (2, 3)


def test_cramers_v_is_of_values_that_are_well_known_together():
    """.15 ± .014 is; with the rest, -.08, it is .07 ± .02 and joins the only other value."""
    table = np.array([[0.53, 0.40], [0.09, 0.06], [-0.04, -0.04]])
    value, *_, values = cramers_v(known_table(table, variance=1e-4))
    assert np.isnan(value)
    assert values == (1, 2)


def test_independence_is_rejected_where_fields_go_together_and_not_where_they_do_not():
    rng = np.random.default_rng(8)
    together = assess_independence(draw_table(TABLE, 30_000, rng))
    apart = np.outer(TABLE.sum(axis=1), TABLE.sum(axis=0))
    independent = assess_independence(draw_table(apart, 30_000, rng))
    assert together.p_value == 1 / (together.draws + 1)
    assert independent.p_value > 0.05
    assert independent.v_low == 0.0
    assert together.fields == ("crash", "driver")


@given(tables, st.integers(0, 2**32 - 1))
@example(np.array([[0.49, 0.01], [0.01, 0.49]]), 5)  # fields that go together but for a few
def test_the_plotted_table_is_a_distribution_with_the_margins(table, seed):
    found = draw_table(table, 3_000, np.random.default_rng(seed), epsilon=2.0)
    cells = shrunk_cells(found).reshape(table.shape)
    assert cells.min() >= 0
    assert cells.sum() == pytest.approx(1)
    for axis in (0, 1):
        margin = found.margin(axis).constrained()
        np.testing.assert_allclose(cells.sum(axis=1 - axis), margin, atol=1e-6)
