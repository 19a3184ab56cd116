"""What newcomers start from: examples and defaults are the best parameters of their epsilons."""

from pathlib import Path

import pytest

from hubbub.planning import Budget, DetectionTest, StringsGoal, detection_limit, plan
from hubbub.protocol import RapporParams, Registry
from hubbub.simulations import METRICS
from hubbub.simulations.cli import DEFAULTS, NOISE

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def example(name: str, metric: str) -> RapporParams:
    return Registry.load(EXAMPLES / name)[metric].params


def defaults_of_run() -> RapporParams:
    size = {name: DEFAULTS["string"][name] for name in ("k", "h", "m")}
    return RapporParams(**size, **NOISE)  # type: ignore[arg-type]  # others are texts and shares


@pytest.mark.parametrize(
    ("params", "candidates", "reports"),
    [
        (Registry.parse(METRICS)["first_name"].params, 91_910, 5e5),
        (defaults_of_run(), 900, 1e6),
        (example("metrics.toml", "homepage"), 1e5, 1e6),
        (example("metrics.toml", "last_crash"), 1e4, 1e6),
        (example("notes.toml", "editor"), 1e4, 1e6),
        (example("wiki.toml", "failed_in"), 1e4, 1e6),
    ],
    ids=["demo", "run", "homepage", "last_crash", "editor", "failed_in"],
)
def test_smallest_share_is_within_half_a_percent_of_the_plans(params, candidates, reports):
    budget = Budget(params.epsilon_permanent, params.epsilon_report)
    best = plan(StringsGoal(DetectionTest(candidates)), budget, n_reports=reports).best
    limit = detection_limit(params, reports, DetectionTest(candidates))
    assert limit <= 1.005 * best.limit, best.params
