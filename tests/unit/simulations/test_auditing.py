"""The audit comes close to epsilon, and would notice clients that reveal more."""

import math

import numpy as np
import pytest

from factories import make_params
from hubbub.simulations import Audit, audit_epsilon

CHROME = make_params()
UPSIDE_DOWN = make_params(p=0.75, q=0.25)


@pytest.mark.parametrize("params", [CHROME, UPSIDE_DOWN, make_params(f=0.0, p=0.4, q=0.6)])
def test_audit_sees_nearly_all_that_epsilon_allows(params):
    audit = audit_epsilon(params, 100_000, np.random.default_rng(1))
    assert audit.kept
    assert audit.observed == pytest.approx(audit.epsilon_report, rel=0.05)
    assert audit.at_least > 0.85 * audit.epsilon_report


def test_audit_of_few_reports_proves_nothing():
    audit = audit_epsilon(CHROME, 5, np.random.default_rng(1))
    assert audit.kept


def test_more_than_epsilon_is_a_breach():
    assert not Audit(1.0, 1.5, 1.2, 1_000).kept
    assert Audit(1.0, math.inf, 0.8, 1_000).kept
