"""Forged reports of an experiment, made in parts."""

import numpy as np
import pytest

from factories import make_params
from hubbub.simulations import Attack, AttackKind, Experiment, ReportingPlan, made_up, make_scenario
from hubbub.simulations.experiments import experiment


def make_experiment(kind: AttackKind) -> Experiment:
    """A thousand honest reports, and as many forged ones."""
    scenario = make_scenario(made_up(np.full(5, 0.2), "string "), 0.0, ("nobody's",))
    plan = ReportingPlan(scenario.population, make_params(k=64, h=2, m=4), clients=1_000)
    return Experiment(scenario, plan, Attack(kind, 0.5), seed=3)


@pytest.mark.parametrize("kind", list(AttackKind))
def test_forged_reports_come_in_parts_of_bounded_size(kind, monkeypatch):
    monkeypatch.setattr(experiment, "CHUNK", 300)
    parts = list(make_experiment(kind).forgeries())
    assert [len(cohorts) for cohorts, _ in parts] == [300, 300, 300, 100]
    reports = {
        (cohort, row.tobytes())
        for cohorts, bits in parts
        for cohort, row in zip(cohorts.tolist(), bits, strict=True)
    }
    # Others than replayed ones have 64 random bits: two are equal with probability below 1e-6.
    assert len(reports) == (1 if kind is AttackKind.REPLAY else 1_000)


def test_without_an_attack_nothing_is_forged():
    scenario = make_scenario(made_up(np.full(5, 0.2), "string "), 0.0, ())
    plan = ReportingPlan(scenario.population, make_params(k=64, h=2, m=4), clients=1_000)
    honest = Experiment(scenario, plan)
    assert not list(honest.forgeries())
    assert honest.targets() == ()
