"""Counts of a whole population: nobody is lost, and the seed alone decides them."""

import itertools
import resource
from dataclasses import replace

import numpy as np
import pytest

from factories import make_params
from hubbub.inference import count_records
from hubbub.protocol import EnumType, JointType, OpenStringType, StringType, Subset, empty_counts
from hubbub.simulations import (
    CHUNK,
    Population,
    PopulationSample,
    Reporter,
    ReportingPlan,
    as_records,
    chunks,
    family_shares,
    made_up,
    sample_population,
)
from unit.decoder.joint_tables import enum_type, fields_of

POPULATION = made_up(family_shares("zipf:1", 20), "v")
PARAMS = make_params(k=8, h=1, m=4)
SEED = np.random.SeedSequence(7)
SEVERAL_CHUNKS = 2 * CHUNK + 17


def same(one: PopulationSample, other: PopulationSample) -> bool:
    return (
        np.array_equal(one.counts.reports, other.counts.reports)
        and np.array_equal(one.counts.bits, other.counts.bits)
        and np.array_equal(one.holders, other.holders)
    )


@pytest.mark.parametrize("reports", [0, 1, CHUNK, SEVERAL_CHUNKS])
def test_every_client_is_counted_once(reports):
    sample = sample_population(ReportingPlan(POPULATION, PARAMS, reports), SEED)
    assert sample.counts.total == sample.holders.sum() == reports


def test_every_client_is_counted_once_a_day():
    sample = sample_population(ReportingPlan(POPULATION, PARAMS, 1_000, days=5, change=0.3), SEED)
    assert sample.counts.total == sample.holders.sum() == 5_000


@pytest.mark.parametrize(
    ("metric_type", "days"),
    [
        (StringType(), 1),
        (OpenStringType((1,), 2), 2),
        pytest.param(StringType(), 2, marks=pytest.mark.long),
        pytest.param(OpenStringType((1,), 2), 1, marks=pytest.mark.long),
    ],
)
def test_same_seed_gives_the_same_counts_for_any_number_of_workers(metric_type, days):
    plan = ReportingPlan(POPULATION, PARAMS, SEVERAL_CHUNKS, days, metric_type=metric_type)
    assert same(sample_population(plan, SEED), sample_population(plan, SEED, workers=2))


def test_counts_are_the_same_where_processes_can_not_share_work():
    """As without /dev/shm: a semaphore is a file there, and no file may be written."""
    plan = ReportingPlan(POPULATION, PARAMS, SEVERAL_CHUNKS)
    expected = sample_population(plan, SEED)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        found = sample_population(plan, SEED, workers=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert same(found, expected)


def test_open_strings_that_begin_alike_set_one_bit_at_the_first_step():
    """With q = 1 - 2^-53 and p = 2^-60 reports are the true bits: all values begin with "v"."""
    params = make_params(k=64, h=1, m=4, f=0.0, p=2**-60, q=1 - 2**-53)
    plan = ReportingPlan(POPULATION, params, 1_000, metric_type=OpenStringType((1,), 2))
    counts = sample_population(plan, SEED).counts
    assert (np.count_nonzero(counts.bits, axis=1)[:2] == 1).all()
    assert (np.count_nonzero(counts.bits, axis=1)[2:] > 5).all()
    assert np.array_equal(counts.bits.sum(axis=1), counts.reports)


def tuples(rows: int, columns: int) -> tuple[Population, JointType]:
    metric_type = enum_type((rows, columns))
    labels = (field.labels for field in fields_of((rows, columns)))
    names = metric_type.field_names()
    values = tuple(dict(zip(names, held, strict=True)) for held in itertools.product(*labels))
    return Population(values, family_shares("zipf:1", len(values))), metric_type


def test_clients_of_tables_set_the_bits_of_their_cells():
    """With q = 1 - 2^-53 and p = 2^-60 reports are the true bits."""
    population, metric_type = tuples(40, 50)
    params = make_params(k=2_000, h=1, m=1, f=0.0, p=2**-60, q=1 - 2**-53)
    plan = ReportingPlan(population, params, 5_000, metric_type=metric_type)
    sample = sample_population(plan, SEED)
    assert np.array_equal(sample.counts.bits[0], sample.holders)


def test_clients_of_large_reports_are_drawn_fewer_at_once():
    """A chunk's reports stay within 32 MiB; all clients are there, whoever draws them."""
    population, metric_type = tuples(64, 64)
    params = make_params(k=4_096, h=1, m=1)
    plan = ReportingPlan(population, params, CHUNK, metric_type=metric_type)
    parts = chunks(plan, SEED)
    assert sum(chunk.size for chunk in parts) == CHUNK
    assert max(chunk.size for chunk in parts) * params.k / 8 <= 2**25
    small = replace(plan, clients=70_000)
    assert same(sample_population(small, SEED), sample_population(small, SEED, workers=2))


def test_counts_are_those_of_the_chunks_reports():
    plan = ReportingPlan(POPULATION, PARAMS, 3_000, days=2, change=0.5)
    counts = empty_counts(PARAMS)
    for chunk in chunks(plan, SEED):
        for day in Reporter(plan, SEED).days(chunk):
            counts += count_records(as_records(day.cohorts, day.bits), PARAMS)
    assert np.array_equal(counts.bits, sample_population(plan, SEED).counts.bits)


def test_values_stay_without_change_and_some_move_with_it():
    def days(change: float) -> list[list[int]]:
        plan = ReportingPlan(POPULATION, PARAMS, 1_000, days=3, change=change)
        (chunk,) = chunks(plan, SEED)
        return [day.held.tolist() for day in Reporter(plan, SEED).days(chunk)]

    first, second, third = days(0.0)
    assert first == second == third
    first, second, _ = days(0.2)
    moved = sum(a != b for a, b in zip(first, second, strict=True))
    assert 100 < moved < 300


def test_once_a_period_every_client_reports_on_a_day_of_its_own():
    """30,000 clients in two periods of three days; P(false alarm) < 1e-6 (normal); seeded."""
    plan = ReportingPlan(POPULATION, PARAMS, 30_000, days=6, period_days=3)
    (chunk,) = chunks(plan, SEED)
    days = [len(day.held) for day in Reporter(plan, SEED).days(chunk)]
    assert len(days) == 6
    assert sum(days[:3]) == sum(days[3:]) == plan.clients
    assert days == pytest.approx([10_000] * 6, abs=6 * np.sqrt(30_000 * 2 / 9))
    assert plan.reports == sum(days)


def test_once_a_period_clients_have_new_coins_and_new_cohorts():
    """One value in two periods: cohorts, and bits in one cohort, agree by chance.

    P(false alarm) < 1e-6 (normal); seeded. A permanent response would give a covariance of .047.
    """
    plan = ReportingPlan(made_up(np.ones(1), "v"), PARAMS, 40_000, days=2, period_days=1)
    (chunk,) = chunks(plan, SEED)
    first, second = Reporter(plan, SEED).days(chunk)
    alike = first.cohorts == second.cohorts
    assert alike.mean() == pytest.approx(0.25, abs=6 * np.sqrt(0.1875 / 40_000))
    products = []
    for cohort in range(PARAMS.m):
        here = alike & (first.cohorts == cohort)
        bits = [np.unpackbits(day.bits[here], axis=1) for day in (first, second)]
        products.append((bits[0] - bits[0].mean(axis=0)) * (bits[1] - bits[1].mean(axis=0)))
    covariance = np.concatenate(products)
    assert abs(covariance.mean()) < 6 * covariance.std() / np.sqrt(covariance.size)


@pytest.mark.parametrize("workers", [1, 2])
def test_sets_are_counted_by_their_size_once_a_period(workers):
    subset = Subset(20, 3, 0.5)
    params = make_params(k=24, h=1, m=1, f=0.0, p=subset.other_chance, q=subset.chance)
    plan = ReportingPlan(
        POPULATION,
        params,
        SEVERAL_CHUNKS,
        days=4,
        metric_type=EnumType(POPULATION.values),
        response=subset,
        period_days=2,
    )
    sample = sample_population(plan, SEED, workers=workers)
    assert sample.counts.total == sample.holders.sum() == 2 * SEVERAL_CHUNKS
    assert sample.counts.bits.sum() == 3 * sample.counts.total
    assert not sample.counts.bits[0, 20:].any()
    assert same(sample, sample_population(plan, SEED))
