"""Tables by the likelihood of all variables' bits, held to sums that are written out."""

import itertools

import numpy as np
import pytest

from association_data import (
    AssociationData,
    PairPopulation,
    draw,
    names,
    reports_of,
    strings_and_flags,
    write_files,
)
from hubbub.inference.arrays import FloatArray
from hubbub.inference.association.decoding import OTHER, AssociationSummary, decode_association
from hubbub.inference.association.estimation import IndistinctCellsError, covariance, maximise
from hubbub.inference.association.mixture import AssociationMixture, mixture_of
from hubbub.inference.association.reports import BOOLEAN, STRING, Variable
from hubbub.inference.association.shrinkage import near_table
from hubbub.inference.candidates import mapped
from hubbub.inference.params import DecodingParams
from hubbub.rappor.association_files import read_reports

PARAMS = DecodingParams(k=5, h=2, m=3, f=0.1, p=0.2, q=0.7)


def three_variables() -> PairPopulation:
    table = np.random.default_rng(5).dirichlet(np.ones(12)).reshape(3, 2, 2)
    kinds = (Variable("a", STRING), Variable("b", BOOLEAN), Variable("c", STRING))
    return PairPopulation(kinds, (2, 2, 1), table)


def three_by_two() -> PairPopulation:
    return strings_and_flags([3, 2, 1], [0.2, 0.5, 0.9], unlisted=[2])


def made(population: PairPopulation, n: int = 300) -> tuple[AssociationData, FloatArray]:
    data = draw(population, PARAMS, n, np.random.default_rng(1))
    return data, np.random.default_rng(2).dirichlet(np.ones(population.cells.size))


def mixture(data: AssociationData) -> AssociationMixture:
    listed = tuple(
        None if own is None else own[:n]
        for own, n in zip(data.positions, data.population.listed, strict=True)
    )
    return mixture_of(reports_of(data), listed)


def written_out(data: AssociationData, shares: FloatArray) -> float:
    """Sum the logarithms of the reports' chances, relative to "no bit is set"."""
    params, total = data.params, 0.0
    p, q, k, h = params.p_star, params.q_star, params.k, params.h

    def chance(bits: list[bool], true: set[int]) -> float:
        each = [(q if j in true else p) if bit else 1 - (q if j in true else p)
                for j, bit in enumerate(bits)]  # fmt: skip
        return float(np.prod(each))

    every = [set(tuple_) for tuple_ in itertools.product(range(k), repeat=h)]
    for i, cohort in enumerate(data.cohorts.tolist()):
        ratios = []
        for own, positions, n in zip(
            data.bits, data.positions, data.population.listed, strict=True
        ):
            bits = own[i].tolist()
            if positions is None:
                found = [chance(bits, set()), chance(bits, {0})]
            else:
                found = [chance(bits, set(positions[s, cohort].tolist())) for s in range(n)]
                found.append(float(np.mean([chance(bits, true) for true in every])))
            ratios.append(np.array(found) / chance(bits, set()))
        cells = ratios[0]
        for ratio in ratios[1:]:
            cells = np.multiply.outer(cells, ratio).ravel()
        total += float(np.log(shares @ cells))
    return total


@pytest.mark.parametrize("population", [three_by_two(), three_variables()], ids=["two", "three"])
def test_the_likelihood_is_that_of_every_report_written_out(population):
    data, shares = made(population)
    assert mixture(data).evaluate(shares).value == pytest.approx(
        written_out(data, shares), rel=1e-10
    )


@pytest.mark.parametrize("population", [three_by_two(), three_variables()], ids=["two", "three"])
def test_gradient_and_information_are_differences_of_the_likelihood(population):
    data, shares = made(population)
    model = mixture(data)
    at, step = model.evaluate(shares), 1e-5
    for cell, along in enumerate(np.eye(len(shares)) * step):
        ahead, behind = model.evaluate(shares + along), model.evaluate(shares - along)
        slope = (ahead.value - behind.value) / (2 * step)
        assert at.gradient[cell] == pytest.approx(slope, rel=1e-5)
        bend = -(ahead.gradient - behind.gradient) / (2 * step)
        np.testing.assert_allclose(at.information[cell], bend, rtol=1e-5, atol=1e-4)


def test_shares_that_a_report_rules_out_have_no_likelihood():
    data, _ = made(three_by_two())
    shares = np.array([3.0, -1.0, -2.0, 0.5, 0.25, 0.25])
    assert mixture(data).evaluate(shares).value == -np.inf


def test_no_shares_are_more_likely_than_the_maximum():
    data, _ = made(three_by_two(), 5_000)
    model = mixture(data)
    found = maximise(model)
    assert found.shares.sum() == pytest.approx(1)
    best = model.evaluate(found.shares).value
    rng = np.random.default_rng(3)
    for _ in range(50):
        aside = rng.normal(0, 0.02, len(found.shares))
        assert model.evaluate(found.shares + aside - aside.mean()).value < best
    spread = covariance(model, found)
    np.testing.assert_allclose(spread, spread.T)
    np.testing.assert_allclose(spread.sum(axis=0), 0, atol=1e-9)
    assert (np.diag(spread) > 0).all()


def test_strings_with_the_same_bits_everywhere_are_one():
    data, _ = made(three_by_two(), 5_000)
    reports = reports_of(data)
    own = data.positions[0]
    assert own is not None
    twice = own[[0, 1, 0]]
    with pytest.raises(IndistinctCellsError, match="don't tell all cells apart"):
        maximise(mixture_of(reports, (twice, None)))
    listed = {"page": mapped(names(3), twice, PARAMS)}
    found = decode_association(reports, listed)
    assert found.fields[0].labels == ("v1", "v2", OTHER)
    assert isinstance(found.summary, AssociationSummary)
    assert found.summary.left_out == {"page": 1}


def test_more_strings_than_reports_tell_apart_leave_the_strongest():
    params = DecodingParams(k=8, h=1, m=8, f=0.0, p=0.2, q=0.8)
    population = strings_and_flags([6, 3], [0.2, 0.8], absent=98)
    data = draw(population, params, 20_000, np.random.default_rng(1))
    found = decode_association(reports_of(data), data.candidates)
    labels = found.fields[0].labels
    assert set(labels) >= {"v1", "v2", OTHER}
    assert isinstance(found.summary, AssociationSummary)
    assert found.summary.left_out == {"page": 101 - len(labels)}
    assert len(labels) < 50


def test_what_is_not_listed_has_a_name_that_no_string_has():
    data, _ = made(three_by_two(), 2_000)
    own = data.positions[0]
    assert own is not None
    listed = {"page": mapped([OTHER, "v2"], own[:2], PARAMS)}
    found = decode_association(reports_of(data), listed)
    assert found.fields[0].labels == (OTHER, "v2", "Other (unlisted)")


def test_three_variables_make_a_table_of_three_fields():
    params = DecodingParams(k=16, h=1, m=16, f=0.0, p=0.1, q=0.9)
    data = draw(three_variables(), params, 40_000, np.random.default_rng(1))
    found = decode_association(reports_of(data), data.candidates)
    assert [each.labels for each in found.fields] == [
        ("v1", "v2", OTHER), ("false", "true"), ("v1", OTHER),
    ]  # fmt: skip
    truth = data.population.cells.ravel()
    assert np.abs(found.cells.share - truth).max() < 6 * found.cells.std_error.max()
    assert np.abs(found.cells.refit - truth).sum() / 2 < 0.15
    assert found.table is not None
    assert [each.fields for each in found.table.independence][-1] == ("a", "b", "c")


def test_booleans_alone_make_a_table():
    table = np.array([[0.5, 0.1], [0.1, 0.3]])
    both = (Variable("f", BOOLEAN), Variable("g", BOOLEAN))
    data = draw(PairPopulation(both, (2, 2), table), PARAMS, 40_000, np.random.default_rng(1))
    found = decode_association(reports_of(data), {})
    assert np.abs(found.cells.refit - table.ravel()).sum() / 2 < 0.1


def test_a_level_outside_of_0_and_1_is_refused():
    data, _ = made(three_by_two())
    with pytest.raises(ValueError, match=r"alpha = 1\.0: must be between 0 and 1"):
        decode_association(reports_of(data), data.candidates, alpha=1.0)


def test_a_table_for_looking_at_is_a_distribution_and_near():
    """Estimates of 20 rows, half of them absent: refit is at most half as far as the estimates."""
    rng = np.random.default_rng(1)
    truth = np.outer(np.append(1 / np.arange(1, 11), np.zeros(10)), [0.6, 0.4])
    truth /= truth.sum()
    n = truth.size
    noise = 0.01**2 * (np.eye(n) - 1 / n)
    unbiased = truth + (rng.normal(0, 0.01, n) @ (np.eye(n) - 1 / n)).reshape(truth.shape)
    information = np.asarray(np.linalg.pinv(noise) / 1e5 + 1.0, np.float64)
    near = near_table(unbiased, noise, information, unlisted=False)
    assert near.min() >= 0
    assert near.sum() == pytest.approx(1)
    assert np.abs(near - truth).sum() < np.abs(unbiased - truth).sum() / 2


def test_reports_are_read_as_they_are_kept_in_memory(tmp_path):
    data, _ = made(three_variables())
    write_files(tmp_path, data)
    read = read_reports(tmp_path / "reports.csv", data.population.variables, PARAMS)
    kept = reports_of(data)
    assert read.total == kept.total == 300
    for name in ("starts", "copies"):
        np.testing.assert_array_equal(getattr(read, name), getattr(kept, name))
    for one, other in zip(read.bits, kept.bits, strict=True):
        np.testing.assert_array_equal(one, other)
