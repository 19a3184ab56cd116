"""Made-up tables have the margins and the partners that were asked for."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hubbub.decoder.metric_types.joint import field_labels
from hubbub.protocol import MetricError
from hubbub.simulations import (
    FieldSize,
    JointPopulation,
    PopulationError,
    family_shares,
    joint_population,
    parse_sizes,
)

sizes = st.lists(st.builds(FieldSize, st.integers(2, 9)), min_size=2, max_size=3).map(tuple)
seeds = st.integers(0, 1_000)


def made(text: str, partners: float = 0.0, seed: int = 1, **size: int) -> JointPopulation:
    rng = np.random.default_rng(seed)
    return joint_population(parse_sizes(text), "zipf:1", partners, rng, size)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100", "1 fields; must be 2 or 3"),
        ("2x2x2x2", "4 fields; must be 2 or 3"),
        ("10x1", "at least 2 values"),
        ("1000x1000", "at most 100000 cells"),
        ("10xb", "must be numbers of values, such as 100x20"),
        ("10x", "must be numbers of values"),
        ("-5x4", "must be numbers of values"),
    ],
)
def test_other_sizes_are_refused(text, expected):
    with pytest.raises(PopulationError, match=expected):
        parse_sizes(text)


@given(sizes, st.floats(0, 1), seeds)
def test_shares_add_up_and_first_field_keeps_its_margin(shape, partners, seed):
    population = joint_population(shape, "zipf:1", partners, np.random.default_rng(seed))
    table = population.shares.reshape(population.shape)
    assert table.sum() == pytest.approx(1)
    first = table.sum(axis=tuple(range(1, table.ndim)))
    np.testing.assert_allclose(first, family_shares("zipf:1", len(first)))


def test_fields_are_independent_without_partners_and_tied_if_all_have_them():
    alone, tied = (made("5x4x3", partners).shares.reshape(5, 4, 3) for partners in (0.0, 1.0))
    margins = [family_shares("zipf:1", n) for n in (5, 4, 3)]
    np.testing.assert_allclose(alone, np.einsum("i,j,k->ijk", *margins))
    assert np.count_nonzero(tied) == 5
    np.testing.assert_allclose(tied.sum(axis=(1, 2)), margins[0])


def test_partners_are_held_by_their_share_of_clients():
    table, alone = (made("8x6", partners).shares.reshape(8, 6) for partners in (0.3, 0.0))
    more = table - 0.7 * alone
    np.testing.assert_allclose(more.sum(), 0.3)
    assert (np.count_nonzero(more > 1e-12, axis=1) == 1).all()


def test_fields_have_the_labels_that_the_decoder_gives_them():
    for population in (made("7x2x3"), made("5sx2", k=64, m=4)):
        given_strings = {
            field.name: field.labels
            for field, own in zip(population.fields, population.metric_type.fields, strict=True)
            if own.type.name == "string"
        }
        assert population.fields == field_labels(population.metric_type, given_strings)


def test_tuples_are_hashed_if_they_have_strings_or_fewer_bits_than_cells():
    assert not made("10x10").metric_type.hashed
    assert made("10x10", k=64, m=4).metric_type.hashed
    assert made("10sx10", k=128, m=4).metric_type.hashed
    with pytest.raises(MetricError, match="m"):
        made("10sx10", k=128)
