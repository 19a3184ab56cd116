"""Forged reports are what their descriptions say."""

import numpy as np
import pytest

from factories import make_params
from hubbub.protocol import OpenStringType, bloom_bits
from hubbub.simulations import Attack, AttackError, AttackKind, choose_targets, forge, parse_attack

PARAMS = make_params(k=64, h=2, m=4)
TARGETS = ("one", "two")


def integers_of(bits: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in bits]


@pytest.mark.parametrize(
    ("text", "attack"),
    [
        ("maximal-gain:targets=5,share=0.01", Attack(AttackKind.MAXIMAL_GAIN, 0.01, 5)),
        ("random:share=0.2", Attack(AttackKind.RANDOM, 0.2, 1)),
        ("replay:share=.05", Attack(AttackKind.REPLAY, 0.05, 1)),
        ("false-value:share=.5,string=a,b=c", Attack(AttackKind.FALSE_VALUE, 0.5, 1, "a,b=c")),
        ("replay:share=.5,string=", Attack(AttackKind.REPLAY, 0.5, 1, "")),
    ],
)
def test_descriptions_are_read(text, attack):
    assert parse_attack(text) == attack


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("loud:share=0.1", "must begin with one of maximal-gain, random, replay, false-value"),
        ("random", "needs share="),
        ("random:share=two", "could not convert"),
        ("random:share=1", r"share must be in \(0, 1\)"),
        ("maximal-gain:share=0.1,targets=0", "targets at least 1"),
        ("random:share=0.1,targets=3", "only maximal-gain takes targets="),
        ("replay:share=0.1,targets=3", "only maximal-gain takes targets="),
        ("random:share=0.1,string=x", "string= can't go with targets= or random"),
        ("maximal-gain:share=0.1,targets=2,string=x", "string= can't go with targets="),
        ("random:share=0.1,share=0.2", "each option may stand there once"),
        ("random:share=0.1,aim=3", "aim isn't share, targets or string"),
    ],
)
def test_other_descriptions_are_refused(text, reason):
    with pytest.raises(AttackError, match=reason):
        parse_attack(text)


def test_maximal_gain_sets_every_bit_of_every_target():
    attack = Attack(AttackKind.MAXIMAL_GAIN, 0.1, 2)
    cohorts, bits = forge(attack, 500, TARGETS, PARAMS, np.random.default_rng(1))
    for cohort, report in zip(cohorts.tolist(), integers_of(bits), strict=True):
        wanted = bloom_bits("one", cohort, PARAMS) | bloom_bits("two", cohort, PARAMS)
        assert report & wanted == wanted


def test_maximal_gain_clears_the_bits_where_a_zero_speaks_for_a_string():
    params = make_params(k=64, h=2, m=4, p=0.75, q=0.25)
    attack = Attack(AttackKind.MAXIMAL_GAIN, 0.1, 2)
    cohorts, bits = forge(attack, 500, TARGETS, params, np.random.default_rng(1))
    for cohort, report in zip(cohorts.tolist(), integers_of(bits), strict=True):
        assert not report & bloom_bits("one", cohort, params)


def test_random_reports_are_fair_coins_in_all_cohorts():
    """128,000 fair coins: |rate - 1/2| < 0.01 but with probability 1e-12."""
    cohorts, bits = forge(
        Attack(AttackKind.RANDOM, 0.1), 2_000, ("one",), PARAMS, np.random.default_rng(1)
    )
    assert set(cohorts.tolist()) == {0, 1, 2, 3}
    assert abs(np.unpackbits(bits).mean() - 0.5) < 0.01


@pytest.mark.parametrize("kind", [AttackKind.MAXIMAL_GAIN, AttackKind.REPLAY])
def test_forgers_of_open_strings_set_the_prefix_of_their_step(kind):
    """With q = 1 - 2^-53 an honest report of the target, which is replayed, has its bit, too."""
    metric_type, params = OpenStringType((2, 4), 2), make_params(k=64, h=1, m=6, q=1 - 2**-53)
    attack = Attack(kind, 0.1)
    rng = np.random.default_rng(1)
    cohorts, bits = forge(attack, 500, ("target",), params, rng, metric_type)
    assert set(cohorts.tolist()) == set(range(6)) or kind is AttackKind.REPLAY
    for cohort, report in zip(cohorts.tolist(), integers_of(bits), strict=True):
        assert report & metric_type.bits("target", cohort, params)


def test_false_values_are_honest_reports_of_the_target():
    """Rates of the set bits are p* and q* within 6 standard errors: P(false alarm) < 1e-6."""
    params = make_params(k=64, h=1, m=1)
    attack = Attack(AttackKind.FALSE_VALUE, 0.1)
    _, bits = forge(attack, 20_000, ("one",), params, np.random.default_rng(1))
    rates = np.unpackbits(bits, axis=1, bitorder="little").mean(axis=0)
    true = bloom_bits("one", 0, params)
    chances = [params.q_star if true >> bit & 1 else params.p_star for bit in range(64)]
    assert np.abs(rates - chances).max() < 6 * 0.5 / np.sqrt(20_000)


def test_targets_are_the_candidates_that_the_fewest_hold():
    truth = np.array([0.5, 0.0, 0.1, 0.0])
    strings = ("a", "b", "c", "d")
    three = Attack(AttackKind.MAXIMAL_GAIN, 0.1, 3)
    assert choose_targets(three, strings, truth) == ("b", "d", "c")
    assert choose_targets(Attack(AttackKind.REPLAY, 0.1), strings, truth) == ("b",)
    assert choose_targets(Attack(AttackKind.RANDOM, 0.1), strings, truth) == ()
