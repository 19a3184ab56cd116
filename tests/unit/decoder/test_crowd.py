"""What a shuffled report hides among: those that are alike in all that an observer may know."""

import itertools
import math

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import optimize, stats

from factories import make_metric, registry_toml
from hubbub.decoder.cli import main
from hubbub.inference import bit_ratios
from hubbub.planning import PlanAssumptions, blanket_delta, group_figures, metric_figures
from hubbub.protocol import BooleanType, Dimension, Group, RapporParams, Registry

DELTA = 1e-6
PARAMS = RapporParams(k=8, h=1, m=1, f=0.0, p=0.12, q=0.88)
DARK = make_metric(
    "dark", metric_type=BooleanType(), params=PARAMS, mode="once", period_days=30, max_periods=2
)
PLATFORM = Dimension("platform", ("mac", "windows"))


def of_slices(min_reports):
    return DARK._replace(dimensions=(PLATFORM,), min_reports=min_reports)


def figures(metric, reports, days=1):
    found = metric_figures(metric, PlanAssumptions(days=days, reports=reports, delta=DELTA))
    return {figure.key: figure for figure in found}


def exact_epsilon(reports):
    """Return epsilon of one of n shuffled booleans, the others' values as bad as they can be.

    The observer sees the number of ones: that of the others is a sum of two binomials.
    """
    laws = []
    for ones in sorted({0, reports // 2, reports - 1}):
        held = stats.binom.pmf(np.arange(ones + 1), ones, PARAMS.q)
        zeros = reports - 1 - ones
        others = np.convolve(held, stats.binom.pmf(np.arange(zeros + 1), zeros, PARAMS.p))
        one = np.convolve(others, [1 - PARAMS.q, PARAMS.q])
        zero = np.convolve(others, [1 - PARAMS.p, PARAMS.p])
        laws += [(one, zero), (zero, one)]

    def excess(epsilon):
        delta = max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in laws)
        return delta - DELTA

    return optimize.brentq(excess, 0, 2, xtol=1e-6)


@pytest.mark.parametrize(
    ("min_reports", "known"), [(100, 1.568), (1_000, 0.321)], ids=["default", "thousand"]
)
def test_a_report_hides_among_its_own_slice_alone(min_reports, known):
    exact = exact_epsilon(min_reports)
    assert exact == pytest.approx(known, abs=2e-3)
    found = figures(of_slices(min_reports), 100_000)
    assert exact <= found["central_epsilon"].value <= 1.25 * exact
    assert found["central_reports"].value == min_reports
    for key in ("central_epsilon", "central_epsilon_days"):
        assert f"{min_reports:,} reports, the smallest slice that is published" in (
            found[key].theorem
        )


@pytest.mark.parametrize("epsilon", [0.2, 0.6, 1.2])
def test_cohorts_split_no_crowd_whose_clients_drew_them_in_secret(epsilon):
    """The exact delta of five reports in four cohorts, over all 792 outcomes.

    Each report shows its cohort. It is a coin that the observer doesn't know, so the bound for five
    holds; for an observer who knows a client's cohort it would not, just as for a known slice.
    """
    n, cohorts = 5, 4
    cells = list(itertools.product(range(cohorts), (0, 1)))
    chance = {
        value: np.array([abs(1 - bit - rate) / cohorts for _, bit in cells])
        for value, rate in ((0, PARAMS.p), (1, PARAMS.q))
    }
    known = {value: law * cohorts * (np.arange(8) < 2) for value, law in chance.items()}

    def law_of_counts(laws):
        found = {(0,) * len(cells): 1.0}
        for law in laws:
            after: dict[tuple[int, ...], float] = {}
            for counts, weight in found.items():
                for cell in np.flatnonzero(law):
                    key = (*counts[:cell], counts[cell] + 1, *counts[cell + 1 :])
                    after[key] = after.get(key, 0.0) + weight * law[cell]
            found = after
        return found

    def delta(mine):
        worst = 0.0
        for ones in range(n):
            others = [chance[int(i < ones)] for i in range(n - 1)]
            one, zero = law_of_counts([mine[1], *others]), law_of_counts([mine[0], *others])
            for a, b in ((one, zero), (zero, one)):
                excess = (v - math.exp(epsilon) * b.get(key, 0.0) for key, v in a.items())
                worst = max(worst, sum(max(each, 0.0) for each in excess))
        return worst

    ratios = bit_ratios(PARAMS)
    bound = max(blanket_delta(r, n, epsilon) for r in (ratios, ratios.swapped()))
    assert delta(chance) <= bound
    assert delta(known) > bound


def test_periods_are_linked_within_a_slice():
    alone, split = figures(DARK, 100_000)["linked_share"], figures(of_slices(100), 100_000)
    ratio = math.cosh(DARK.epsilon_report / 2) ** 2
    assert alone.value == pytest.approx(ratio / 100_000)
    assert split["linked_share"].value == pytest.approx(ratio / 100)
    assert "smallest slice" in split["linked_share"].theorem


def test_no_attacker_links_periods_better_than_is_stated():
    """The best guess which of six booleans is a client's other report: all values and outcomes."""
    n, share = 6, 0.5
    rates = {0: PARAMS.p, 1: PARAMS.q}
    right = 0.0
    for first, *others in itertools.product((0, 1), repeat=n + 1):

        def joint(bit, first=first):  # of both reports of one client
            return sum(share * abs(1 - first - r) * abs(1 - bit - r) for r in rates.values())

        # With shares of one half a report of anybody is 0 or 1 alike.
        right += max(joint(bit) for bit in others) / n * 0.5 ** (n - 1)
    stated = figures(DARK, n)["linked_share"].value
    assert 1 / n < right <= stated


@pytest.mark.parametrize(("choice", "times"), [("life", 2), ("period", 1)])
def test_a_group_that_chooses_for_life_links_its_clients_periods(choice, times):
    metrics = {name: DARK._replace(name=name, group="either") for name in "ab"}
    registry = Registry("com.example.b", metrics, groups=[Group("either", ("a", "b"), choice)])
    found = {f.key: f.value for f in group_figures(registry, PlanAssumptions())["either"]}
    assert found["linked_by_choice"] == times


def test_the_command_says_what_a_slice_hides(tmp_path):
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(of_slices(100)), encoding="utf-8")
    result = CliRunner().invoke(main, ["privacy", str(path), "--reports", "1e5"])
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "After shuffling 100,000 reports, or those of the smallest slice" in text
    assert "A report hides among those of its own combination only" in text
    assert "a link of two periods is right in at most 2.4% of cases" in text
