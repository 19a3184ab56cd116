"""The populations and parameters that the decoder is measured on."""

from __future__ import annotations

from functools import partial

from evaluation.calibration.scenarios import census, made_up
from evaluation.calibration.trials import Case
from hubbub.inference.arrays import FloatArray
from hubbub.protocol.params import RapporParams
from hubbub.protocol.registry import Registry
from hubbub.simulations.demo import METRICS
from hubbub.simulations.populations import family_shares

LOOSE = RapporParams(k=128, h=1, m=64, f=0.2, p=0.05, q=0.75)
PAPER = RapporParams(k=128, h=2, m=64, f=0.5, p=0.25, q=0.75)
"""As the paper's figures: epsilon 2.1 a report."""
SMALL = RapporParams(k=32, h=1, m=16, f=0.25, p=0.2, q=0.8)
CROWDED = RapporParams(k=8, h=2, m=32, f=0.5, p=0.25, q=0.75)
uniform = partial(family_shares, "uniform")
zipf = partial(family_shares, "zipf:1")
DEMO = Registry.parse(METRICS)["first_name"].params


def synthetic_case(
    name: str,
    params: RapporParams,
    reports: int,
    shares: FloatArray,
    unlisted_every: int = 0,
    absent: int = 0,
) -> Case:
    """Return a case of strings that differ from seed to seed (see `made_up`)."""
    scenario = partial(made_up, shares, unlisted_every=unlisted_every, absent=absent)
    return Case(name, params, reports, scenario)


DEMO_CASE = Case("census, the demo's", DEMO, 500_000, census)
