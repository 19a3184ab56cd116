"""Forged reports raise their target as far as reports can, and come on top of the clients'."""

from dataclasses import replace

import numpy as np
import pytest

from factories import make_params
from hubbub.protocol import OpenStringType, bloom_bits
from hubbub.simulations import (
    CHUNK,
    Experiment,
    ReportingPlan,
    forge,
    made_up,
    make_scenario,
    run_experiment,
)

SCENARIO = make_scenario(made_up(np.full(5, 0.2), "string "), 0.0, ("nobody's",))
PLAN = ReportingPlan(SCENARIO.population, make_params(k=64, h=2, m=4), clients=5_000)


def integers_of(bits: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in bits]


@pytest.mark.parametrize(("p", "q"), [(0.25, 0.75), (0.75, 0.25)])
def test_forged_reports_set_every_bit_of_their_target_or_clear_it_where_zeros_count(p, q):
    params = make_params(k=64, h=2, m=4, p=p, q=q)
    cohorts, bits = forge(500, "one", params, np.random.default_rng(1))
    assert set(cohorts.tolist()) == set(range(4))
    for cohort, report in zip(cohorts.tolist(), integers_of(bits), strict=True):
        wanted = bloom_bits("one", cohort, params)
        assert report & wanted == (wanted if q > p else 0)


def test_forgers_of_open_strings_set_the_prefix_of_their_step():
    metric_type, params = OpenStringType((2, 4), 2), make_params(k=64, h=1, m=6)
    cohorts, bits = forge(500, "target", params, np.random.default_rng(1), metric_type)
    assert set(cohorts.tolist()) == set(range(6))
    for cohort, report in zip(cohorts.tolist(), integers_of(bits), strict=True):
        assert report & metric_type.bits("target", cohort, params)


def test_forged_reports_are_their_share_of_all_and_raise_the_rarest_candidate():
    target = SCENARIO.rarest()
    assert target == "nobody's"
    outcome = run_experiment(Experiment(SCENARIO, PLAN, 0.2, target, seed=3))
    place = outcome.strings.index(target)
    assert outcome.truth.sum() == pytest.approx(0.8)
    assert outcome.truth[place] == 0
    assert outcome.estimates.share[place] > 0.2


def test_forged_reports_are_made_in_parts_of_bounded_size():
    many = Experiment(SCENARIO, replace(PLAN, clients=CHUNK + 7), 0.5, "nobody's")
    parts = [len(cohorts) for cohorts, _ in many.forgeries()]
    assert (max(parts), sum(parts)) == (CHUNK, CHUNK + 7)
