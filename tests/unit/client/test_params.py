"""The six parameters, what is refused, and what the two epsilons promise."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from factories import make_params
from hubbub.client import ParameterError, RapporParams

probabilities = st.floats(0, 1)
inner = st.floats(0.01, 0.99)


@pytest.mark.parametrize(
    ("f", "p", "q", "permanent", "report"),
    [
        (0.5, 0.5, 0.75, 4.3944, 1.0743),
        (0.75, 0.5, 0.75, 2.0433, 0.5343),
        (0.5, 0.25, 0.75, 4.3944, 2.0433),
    ],
)
def test_epsilons_of_the_rappor_paper(f, p, q, permanent, report):
    params = make_params(h=2, f=f, p=p, q=q)
    assert params.epsilon_permanent == pytest.approx(permanent, abs=5e-5)
    assert params.epsilon_report == pytest.approx(report, abs=5e-5)


def test_default_of_the_paper_is_four_times_ln_three():
    assert make_params(h=2, f=0.5).epsilon_permanent == pytest.approx(4 * math.log(3), rel=1e-15)


@given(h=st.integers(1, 8), f=inner, p=inner, q=inner)
def test_epsilons_are_never_understated(h, f, p, q):
    """Against the definition in exact fractions: exp(epsilon / factor) covers the worst odds."""
    if p == q:
        return
    params = make_params(h=h, f=f, p=p, q=q)
    flip = Fraction(f) / 2
    p_star = flip * Fraction(q) + (1 - flip) * Fraction(p)
    q_star = (1 - flip) * Fraction(q) + flip * Fraction(p)
    odds = q_star * (1 - p_star) / (p_star * (1 - q_star))
    slack = 1 + Fraction(1, 10**12)  # math.exp's own rounding
    assert Fraction(math.exp(params.epsilon_permanent / (2 * h))) * slack >= (1 - flip) / flip
    assert Fraction(math.exp(params.epsilon_report / h)) * slack >= max(odds, 1 / odds)


@given(f=st.just(0.0) | st.floats(1e-300, 0.99), p=inner, q=inner)
def test_effective_probabilities_follow_the_paper(f, p, q):
    if p == q:
        return
    params = make_params(f=f, p=p, q=q)
    assert params.p_star == pytest.approx(f * (p + q) / 2 + (1 - f) * p)
    assert params.q_star == pytest.approx(f * (p + q) / 2 + (1 - f) * q)


@pytest.mark.parametrize(
    "noise", [{"f": 0.0}, {"f": -0.0}, {"f0": -0.0, "f1": 0.2}, {"f0": 0.2, "f1": -0.0}]
)
def test_epsilon_permanent_is_infinite_without_permanent_noise(noise):
    params = RapporParams(128, 2, 64, **noise, p=0.5, q=0.75)
    assert params.epsilon_permanent == params.epsilon_after_of_a_bit(math.inf) == math.inf
    assert math.isfinite(params.epsilon_report)


def test_smallest_noise_still_has_finite_epsilons():
    params = make_params(f=2.0**-1000, p=2.0**-1074, q=1 - 2.0**-53)
    assert math.isfinite(params.epsilon_permanent)
    assert math.isfinite(params.epsilon_report)


def test_epsilon_does_not_care_which_of_p_and_q_is_larger():
    one, other = make_params(p=0.25, q=0.75), make_params(p=0.75, q=0.25)
    assert one.epsilon_report == other.epsilon_report


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("k", 100, "k = 100: must be a multiple of 8 between 8 and 4096"),
        ("k", 0, "k = 0: must be a multiple of 8 between 8 and 4096"),
        ("k", 4104, "k = 4104: must be a multiple of 8"),
        ("k", 128.0, "k = 128.0: must be a multiple of 8"),
        ("h", 0, "h = 0: must be an integer between 1 and 8"),
        ("h", 9, "h = 9: must be an integer between 1 and 8"),
        ("h", True, "h = True: must be an integer between 1 and 8"),
        ("m", 0, "m = 0: must be an integer between 1 and 65535"),
        ("m", 65536, "m = 65536: must be an integer between 1 and 65535"),
        ("f", 1.0, "f = 1.0: must be less than 1"),
        ("f", 5e-324, "f = 5e-324: must be 0, or large enough for f/2 to be above 0"),
        ("f", -0.1, "f = -0.1: must be a number between 0 and 1"),
        ("p", 1.5, "p = 1.5: must be a number between 0 and 1"),
        ("q", math.nan, "q = nan: must be a number between 0 and 1"),
        ("q", "0.5", "q = '0.5': must be a number between 0 and 1"),
        ("p", None, "p = None: must be a number between 0 and 1"),
        ("p", 0.75, "p = q = 0.75: must differ"),
    ],
)
def test_bad_parameter_is_named_with_what_was_expected(field, value, expected):
    given_values: dict[str, object] = {"k": 128, "h": 2, "m": 64, "f": 0.5, "p": 0.25, "q": 0.75}
    with pytest.raises(ParameterError) as caught:
        RapporParams(**(given_values | {field: value}))
    assert expected in str(caught.value)


@pytest.mark.parametrize(("p", "q"), [(0.0, 0.5), (0.5, 1.0), (0.0, 1.0), (1.0, 0.0)])
def test_reports_that_would_reveal_a_true_bit_are_refused(p, q):
    with pytest.raises(ParameterError, match="reveal a true bit for certain"):
        make_params(f=0.0, p=p, q=q)


def test_certain_instantaneous_response_is_allowed_behind_permanent_noise():
    params = make_params(h=2, f=0.5, p=0.0, q=1.0)
    # One-time RAPPOR: the permanent bits are the report.
    assert params.epsilon_report == pytest.approx(params.epsilon_permanent)


@given(f=probabilities, p=probabilities, q=probabilities)
def test_whatever_is_accepted_has_a_finite_epsilon_per_report(f, p, q):
    try:
        params = make_params(f=f, p=p, q=q)
    except ParameterError:
        return
    assert 0 < params.epsilon_report < math.inf


@st.composite
def noises(draw: st.DrawFn) -> RapporParams:
    """Both responses, neither of them symmetric."""
    f0, f1 = (draw(st.floats(0.01, 0.49)) for _ in range(2))
    p = draw(st.floats(0.02, 0.6))
    q = p + draw(st.floats(0.05, 0.95)) * (0.98 - p)
    p, q = draw(st.sampled_from([(p, q), (q, p)]))
    return RapporParams(8, 2, 1, f0=f0, f1=f1, p=p, q=q)


def exact_ratios(params: RapporParams, reports: int) -> list[Fraction]:
    """Return how much likelier each history of one bit is under a true 1 than under a true 0."""
    f0, f1, p, q = (Fraction(getattr(params, name)) for name in ("f0", "f1", "p", "q"))

    def chance(one: Fraction, ones: int) -> Fraction:
        """Of a history with so many ones, the permanent bit being 1 with some chance."""
        parts = (q**ones * (1 - q) ** (reports - ones), p**ones * (1 - p) ** (reports - ones))
        return one * parts[0] + (1 - one) * parts[1]

    return [chance(1 - f1, ones) / chance(f0, ones) for ones in range(reports + 1)]


@given(noises(), st.integers(1, 12))
def test_no_history_of_a_bit_reveals_more_than_the_bounds(params, reports):
    """The bounds are attained, and are never below what histories reveal: exact fractions."""
    ratios = exact_ratios(params, reports)
    one_way, other_way = max(ratios), 1 / min(ratios)
    of_a_bit = params.epsilon_after_of_a_bit(reports)
    assert of_a_bit == pytest.approx(log(max(one_way, other_way)), rel=1e-12)
    after = params.epsilon_after(reports)
    assert after == pytest.approx(params.h * log(one_way * other_way), rel=1e-12)
    assert of_a_bit <= params.epsilon_after_of_a_bit(math.inf)
    assert after <= params.epsilon_permanent


@given(noises())
def test_a_permanent_response_reveals_what_its_own_bits_do(params):
    f0, f1 = Fraction(params.f0), Fraction(params.f1)
    ones, zeros = (1 - f1) / f0, (1 - f0) / f1
    of_a_bit = params.epsilon_after_of_a_bit(math.inf)
    assert of_a_bit == pytest.approx(log(max(ones, zeros)), rel=1e-12)
    assert params.epsilon_permanent == pytest.approx(params.h * log(ones * zeros), rel=1e-12)
    assert params.f == params.f0 + params.f1


@given(noises(), st.floats(0.05, 0.9))
def test_changed_parameters_are_the_others_with_the_change(params, f):
    assert params._replace(p=0.01) == RapporParams(**(params._asdict() | {"p": 0.01}))
    assert params._replace(f=f) == RapporParams(8, 2, 1, f, params.p, params.q)


def log(ratio: Fraction) -> float:
    """Return the natural logarithm of a ratio of large integers."""
    return math.log(ratio.numerator) - math.log(ratio.denominator)
