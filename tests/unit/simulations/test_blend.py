"""Populations of which some opt in: what their curator finds, counts and releases."""

import math
from dataclasses import replace

import pytest
from click.testing import CliRunner

from hubbub.client import RapporParams
from hubbub.simulations.cli.group import main
from hubbub.simulations.experiments.blend import BlendExperiment, curate, laplace
from hubbub.simulations.populations import family_shares, made_up
from significance import frequency_bounds

EXPERIMENT = BlendExperiment(
    made_up(family_shares("zipf:1.0", 50), "string "),
    RapporParams(64, 1, 8, 0.0, 0.2, 0.5),
    people=100_000,
    opted_in=(0.1,),
    absent=("absent",),
)


def test_noise_is_discrete_laplace(rng):
    """Frequencies of 100,000 draws, exact binomial intervals: P(false alarm) <= 2e-6."""
    a, n = math.exp(-0.9), 100_000
    drawn = laplace(rng, n, a)
    for outcome in range(-3, 4):
        chance = (1 - a) / (1 + a) * a ** abs(outcome)
        low, high = frequency_bounds(int((drawn == outcome).sum()), n, 1e-7)
        assert low <= chance <= high


def test_names_are_found_from_the_curators_threshold_on(rng):
    """At epsilon 1 and delta 1e-6 that is 15: a^14 / (1 + a) <= 1e-6, and a^13 / (1 + a) isn't."""
    assert EXPERIMENT.least_count == 15
    names, release = curate(replace(EXPERIMENT, reuse_counts=True), 2_000, rng)
    assert release.counts.min() >= 15
    assert release.keys == tuple(EXPERIMENT.population.values[name] for name in names.tolist())
    assert 0 < len(names) < 50


def test_counts_are_of_the_half_that_did_not_find_the_names(rng):
    """Half of 10,000 people, 8 deviations of room: P(false alarm) < 1e-10."""
    _, release = curate(EXPERIMENT, 10_000, rng)
    assert abs(release.total - 5_000) < 8 * math.hypot(50, math.sqrt(release.total_variance))
    assert release.noise.scale == pytest.approx(1 / 0.9)
    assert release.total_variance == pytest.approx(200, rel=0.01)


def test_a_group_that_differs_holds_every_second_value_more_often():
    shares = replace(EXPERIMENT, difference=0.5).group_shares
    ratios = shares / EXPERIMENT.population.shares
    assert shares.sum() == pytest.approx(1)
    assert ratios[0::2] == pytest.approx(3 * ratios[1::2])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--opted-in", "0.0001"], "--opted-in 0.0001: is 100 people; with --epsilon 1 at least"),
        (["--opted-in", "1.5"], "--opted-in 1.5: must be between 0 and 1"),
        (["--opted-in", "nan"], "--opted-in nan: must be between 0 and 1"),
        (["--epsilon", "0"], "--epsilon 0: must be above 0"),
        (["--epsilon-report", "inf"], "--epsilon-report inf: must be above 0"),
        (["--delta", "1"], "--delta 1: must be between 0 and 1"),
        (["--differ", "1"], "--differ 1: must be at least 0 and below 1"),
        (["--k", "100"], "k = 100: must be a multiple of 8"),
        (["--population", "nobody"], "population 'nobody'"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_work(tmp_path, options, complaint):
    done = CliRunner().invoke(main, ["blend", "--output", str(tmp_path / "out"), *options])
    assert done.exit_code == 2
    assert complaint in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()
