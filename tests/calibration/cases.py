"""The populations and parameters that the decoder is measured on."""

from __future__ import annotations

from functools import partial

from calibration.trials import Case
from calibration.worlds import census, exponential, made_up, uniform, zipf
from hubbub.client.metrics import Registry
from hubbub.client.params import RapporParams
from hubbub.decoder.arrays import FloatArray
from hubbub.simulations.demo import METRICS

LOOSE = RapporParams(k=128, h=1, m=64, f=0.2, p=0.05, q=0.75)
PAPER = RapporParams(k=128, h=2, m=64, f=0.5, p=0.25, q=0.75)
"""As the paper's figures: epsilon 2.1 a report."""
TIGHT = RapporParams(k=128, h=2, m=64, f=0.5, p=0.4, q=0.6)
SMALL = RapporParams(k=32, h=1, m=16, f=0.25, p=0.2, q=0.8)
TINY = RapporParams(k=8, h=1, m=128, f=0.25, p=0.35, q=0.65)
CROWDED = RapporParams(k=8, h=2, m=32, f=0.5, p=0.25, q=0.75)
ONE_COHORT = RapporParams(k=256, h=2, m=1, f=0.25, p=0.25, q=0.75)
DEMO = Registry.parse(METRICS)["first_name"].params


def made_up_case(
    name: str,
    params: RapporParams,
    reports: int,
    shares: FloatArray,
    unlisted_every: int = 0,
    absent: int = 0,
) -> Case:
    """Return a case of strings that differ from seed to seed (see `made_up`)."""
    world = partial(made_up, shares, unlisted_every=unlisted_every, absent=absent)
    return Case(name, params, reports, world)


CASES = (
    made_up_case("zipf, loose", LOOSE, 200_000, zipf(200), absent=800),
    made_up_case("zipf, paper's", PAPER, 200_000, zipf(200), absent=800),
    made_up_case("zipf, tight", TIGHT, 1_000_000, zipf(200), absent=800),
    made_up_case("exponential, loose", LOOSE, 100_000, exponential(100, 0.95), absent=100),
    made_up_case("exponential, paper's", PAPER, 1_000_000, exponential(100, 0.95), absent=100),
    made_up_case("uniform over 50", PAPER, 200_000, uniform(50), absent=150),
    made_up_case("small filter", SMALL, 100_000, zipf(40), absent=60),
    made_up_case("tiny filter, tight", TINY, 500_000, zipf(40), absent=200),
    made_up_case("one cohort", ONE_COHORT, 50_000, exponential(30, 0.85), absent=30),
    made_up_case("few reports", LOOSE, 5_000, exponential(20, 0.7), absent=200),
    made_up_case("a third not listed", PAPER, 500_000, zipf(90), unlisted_every=3, absent=200),
    made_up_case("top string not listed", LOOSE, 200_000, exponential(50, 0.7), 50, absent=500),
    made_up_case("none present", PAPER, 200_000, zipf(100), unlisted_every=1, absent=1_000),
    made_up_case("none present, small", SMALL, 20_000, zipf(20), unlisted_every=1, absent=200),
    made_up_case("tiny filter, all listed", CROWDED, 10_000_000, zipf(100)),
    Case("census, the demo's", DEMO, 500_000, census),
)
