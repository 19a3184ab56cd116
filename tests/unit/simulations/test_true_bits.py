"""Simulated clients' true bits are the real client's, whatever the value, the steps, the cohort."""

import itertools

import numpy as np
from hypothesis import given, strategies as st

from factories import make_params
from hubbub.protocol import (
    BooleanType,
    EnumType,
    Field,
    JointType,
    OpenStringType,
    OrdinalType,
    StringType,
    Value,
)
from hubbub.simulations import true_bits

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5)
filter_sizes = st.integers(1, 128).map(lambda n: 8 * n)
steps = st.sets(st.integers(1, 64), min_size=1, max_size=8).map(sorted).map(tuple)


@given(texts, filter_sizes, steps, st.integers(1, 40))
def test_open_strings_set_the_bit_of_their_prefix(values, k, lengths, cohorts):
    metric_type = OpenStringType(lengths, cohorts)
    params = make_params(k, 1, (len(lengths) + 1) * cohorts)
    everyone = [(value, cohort) for value in range(len(values)) for cohort in range(params.m)]
    held, cohort = np.array(everyone).T
    packed = true_bits(tuple(values), params, metric_type).take(held, cohort)
    bits = [int.from_bytes(row.tobytes(), "little") for row in packed]
    assert bits == [metric_type.bits(values[i], c, params) for i, c in everyone]


@given(
    st.lists(st.tuples(st.integers(2, 6), st.booleans()), min_size=2, max_size=3),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 20),
)
def test_tuples_set_the_bit_of_their_cell_or_the_bits_of_their_filter(sizes, hashed, h, m):
    labels = [[f"{field} {i}" for i in range(n)] for field, (n, _) in enumerate(sizes)]
    fields = tuple(
        Field(f"f{i}", StringType() if strings else EnumType(tuple(names)))
        for i, (names, (_, strings)) in enumerate(zip(labels, sizes, strict=True))
    )
    metric_type = JointType(fields, hashed)
    size = {"k": 8, "h": h, "m": m} if metric_type.hashed else {}
    params = make_params(**metric_type.filter_size(size))
    names = metric_type.field_names()
    values = [dict(zip(names, held, strict=True)) for held in itertools.product(*labels)]
    everyone = [(i, cohort) for i in range(len(values)) for cohort in range(params.m)]
    held, cohort = np.array(everyone).T
    packed = true_bits(values, params, metric_type).take(held, cohort)
    bits = [int.from_bytes(row.tobytes(), "little") for row in packed]
    assert bits == [metric_type.bits(values[i], c, params) for i, c in everyone]


@given(st.sampled_from([BooleanType(), EnumType(("a", "b", "c")), OrdinalType((1.0, 2.0))]),
       st.integers(1, 5))  # fmt: skip
def test_categories_set_their_bit_in_every_cohort(metric_type, m):
    values: dict[str, tuple[Value, Value]] = {
        "boolean": (False, True),
        "enum": ("c", "a"),
        "ordinal": (0.5, 2.5),
    }
    held, cohort = np.array([(i, c) for i in range(2) for c in range(m)]).T
    params, own = make_params(8, 1, m), values[metric_type.name]
    packed = true_bits(own, params, metric_type).take(held, cohort)
    assert packed[:, 0].tolist() == [metric_type.bits(own[i], 0, params) for i in held]
