"""Every lane of a word compares its own coins with all binary digits of its probability."""

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from hubbub.client import randomness
from hubbub.simulations import bernoulli_words, digit_codes, keyed_bernoulli_words
from parameters import examples

ALL = np.uint64(2**64 - 1)
chances = st.floats(0, 1)
products = st.builds(lambda a, b: Fraction(a) * Fraction(b), chances, chances)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, 0xFF00FF00FF00FF00),
        (1.0, 0.0, 0x00FF00FF00FF00FF),
        (0.0, 0.0, 0),
        (1.0, 1.0, ALL),
    ],
)
def test_certain_bits_are_certain(low, high, expected):
    selector = np.full(1000, 0xFF00FF00FF00FF00, dtype=np.uint64)
    bits = bernoulli_words(np.random.default_rng(1), selector, low, high)
    assert (bits == np.uint64(expected)).all()


@examples(50)
@given(chances | products, chances | products, st.integers(0, 2**64 - 1), st.integers(0, 2**32))
def test_lanes_compare_all_digits_of_their_probability(low, high, selector, seed):
    """The coins of a lane, read as binary digits, are its uniform number: 1 if below, 0 if not."""
    word = bernoulli_words(
        np.random.default_rng(seed), np.array([selector], dtype=np.uint64), low, high
    )
    coins = np.random.default_rng(seed).bit_generator.random_raw(2200)
    for lane in range(64):
        digits = "".join(str(coin >> lane & 1) for coin in coins.tolist())
        uniform = Fraction(int(digits, 2), 2 ** len(digits))
        chance = Fraction(high if selector >> lane & 1 else low)
        assert int(word[0]) >> lane & 1 == (uniform < chance)


class ScriptedBits:
    """Gives one word a round, whose first three lanes spell the uniform numbers they were told."""

    def __init__(self, uniforms: list[Fraction], digits: int) -> None:
        scaled = [int(uniform * 2**digits) for uniform in uniforms]
        self._rounds = [
            sum((number >> place & 1) << lane for lane, number in enumerate(scaled))
            for place in reversed(range(digits))
        ]

    def random_raw(self, size: int) -> npt.NDArray[np.uint64]:
        assert size == 1
        return np.array([self._rounds.pop(0)], dtype=np.uint64)


class ScriptedCoins(np.random.Generator):
    """A generator that draws scripted bits."""

    def __init__(self, bits: ScriptedBits) -> None:
        super().__init__(np.random.PCG64(0))
        self._bits = bits

    @property
    def bit_generator(self) -> Any:
        return self._bits


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_last_digit_of_a_probability_decides_where_all_others_agree(chance):
    """Coins that say just what the probability is, one unit in the last place less, and one more.

    No real generator would come to the last digit, which may be the 1074th.
    """
    exact = Fraction(chance)
    digits = exact.denominator.bit_length() - 1
    unit = Fraction(1, 2**digits)
    uniforms = [exact, exact - unit, min(exact + unit, 1 - unit)]
    coins = ScriptedCoins(ScriptedBits(uniforms, digits))
    (word,) = bernoulli_words(coins, np.zeros(1, dtype=np.uint64), chance, chance)
    assert int(word) & 0b111 == 0b010


@given(chances, chances)
def test_digits_are_those_that_the_client_compares_with(low, high):
    assert digit_codes(low, high) == randomness.digit_codes(low, high)


@pytest.mark.parametrize("chance", [Fraction(1, 3), Fraction(3, 2), -0.5, 1.5])
def test_probability_without_last_digit_or_out_of_range_is_refused(chance):
    with pytest.raises(ValueError, match="must be in"):
        digit_codes(0.5, chance)


@pytest.mark.parametrize("length", [1, 8191, 8192, 8193, 20_000])
def test_long_arrays_are_drawn_in_blocks_and_none_is_left_out(length):
    """Every word is drawn: chance that 64 lanes of 1 - 2^-40 are all 0 is nil."""
    selector = np.full(length, ALL)
    words = bernoulli_words(np.random.default_rng(1), selector, 0.0, 1 - 2.0**-40)
    assert words.all()


def test_same_key_gives_the_same_bits_wherever_it_stands():
    """Words of one key among others, in the first block and beyond: the digits never end early."""
    keys = np.arange(20_000, dtype=np.uint64)
    keys[[5, 8_500, 19_999]] = 77
    nothing = np.zeros(len(keys), dtype=np.uint64)
    words = keyed_bernoulli_words(keys, nothing, 0.3141, 0.3141)
    assert words[5] == words[8_500] == words[19_999]
    alone = keyed_bernoulli_words(keys[5:6], nothing[:1], 0.3141, 0.3141)
    assert alone[0] == words[5]
    assert len(set(words.tolist())) == len(words) - 3  # 77 stands four times
