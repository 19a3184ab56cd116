"""The sampler's exact comparison, checked outcome by outcome rather than on average."""

import itertools
import os
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from evaluation.reference import protocol
from factories import seeded_stream
from hubbub.client.encoder import draw_cells
from hubbub.client.randomness import (
    BernoulliSampler,
    ByteStream,
    KeyedStream,
    keyed_message,
    os_stream,
    uniform_below,
)
from hubbub.protocol import Subset

AWKWARD = (0.3141, 0.1234, 0.8765, 0.1, 1 / 3, 5e-324, 2.2e-308, 1 - 2**-53, 0.0, 1.0, 0.5)
chances = st.floats(0, 1) | st.sampled_from(AWKWARD)


def stream_of(data: bytes | bytearray) -> ByteStream:
    """Read the given bytes once, however large the reads are; fail beyond their end."""
    rest = bytearray(data)

    def read(n: int) -> bytes:
        taken = bytes(rest[:n])
        del rest[:n]
        assert len(taken) == n, "read beyond the end of the coins"
        return taken

    return read


@given(
    low=chances,
    high=chances,
    width=st.sampled_from((1, 2, 16, 128)),
    seed=st.binary(min_size=1, max_size=8),
)
def test_draw_equals_the_reference_digit_by_digit(low, high, width, seed):
    k = 8 * width
    selector = protocol.shake(b"selector" + seed, width)
    coins = protocol.shake(seed, 1100 * width)
    lanes = [high if selector[j // 8] >> j % 8 & 1 else low for j in range(k)]
    drawn = BernoulliSampler(k, low, high).draw(
        int.from_bytes(selector, "little"), KeyedStream(seed)
    )
    assert drawn.to_bytes(width, "little") == protocol.bernoulli(lanes, coins)


@pytest.mark.parametrize(("low", "high"), [(0.25, 0.75), (0.5, 0.375), (0.0, 1.0), (1.0, 0.125)])
def test_every_outcome_of_three_digits_has_exactly_its_probability(low, high):
    """All 8**2 coin sequences of two lanes, enumerated: an equality, not a statistic."""
    selector = 0b01
    outcomes: Counter[int] = Counter()
    for rounds in itertools.product(range(4), repeat=3):
        coins = b"".join(bytes([byte]) for byte in rounds) + bytes(16)
        drawn = BernoulliSampler(8, low, high).draw(selector, stream_of(coins))
        outcomes[drawn & 3] += 1
    for first, second in itertools.product((0, 1), repeat=2):
        chance = (Fraction(high) if first else 1 - Fraction(high)) * (
            Fraction(low) if second else 1 - Fraction(low)
        )
        assert Fraction(outcomes[first + 2 * second], 64) == chance


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 0), (1.0, 2**64 - 1)])
def test_certainty_needs_no_coins(chance, expected):
    assert BernoulliSampler(64, chance, chance).draw(0x0F, stream_of(b"")) == expected


@pytest.mark.parametrize("sample", range(20))
def test_no_coin_is_used_by_two_lanes(sample):
    """Turning over one coin may change the lane that it belongs to, and no other."""
    lanes, rounds, selector = 32, 8, 0x5A5A5A5A
    sampler = BernoulliSampler(lanes, 0.3141, 0.8765)
    coins = seeded_stream(f"coins {sample}")(80 * lanes // 8)
    drawn = sampler.draw(selector, stream_of(coins))
    for index in range(lanes * rounds):
        turned = bytearray(coins)
        turned[index // 8] ^= 1 << index % 8
        difference = drawn ^ sampler.draw(selector, stream_of(bytes(turned)))
        assert difference in {0, 1 << index % lanes}


def test_a_set_holds_its_own_category_with_exactly_its_chance():
    """All pairs of bytes that the coin may read, enumerated: an equality."""
    response = Subset(4, 1, 8087 / 65536)
    streams = (
        stream_of(bytes([*pair, *bytes(8)])) for pair in itertools.product(range(256), repeat=2)
    )
    held = sum(draw_cells(response, 0, stream) == 1 for stream in streams)
    assert Fraction(held, 65536) == Fraction(response.chance)


def test_keyed_stream_does_not_depend_on_the_size_of_reads():
    whole = KeyedStream(b"message")(1000)
    pieces = KeyedStream(b"message")
    assert b"".join(pieces(n) for n in (1, 7, 0, 200, 792)) == whole


@given(
    one=st.lists(st.binary(max_size=4), max_size=4),
    other=st.lists(st.binary(max_size=4), max_size=4),
)
def test_different_parts_give_different_messages(one, other):
    assert (keyed_message(*one) == keyed_message(*other)) == (one == other)


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 1024])
def test_uniform_below_throws_away_what_would_favour_a_remainder(bound):
    limit = 2**32 // bound * bound
    highest = (limit - 1).to_bytes(4, "little")
    assert uniform_below(bound, stream_of(highest)) == bound - 1
    if limit < 2**32:
        too_high = limit.to_bytes(4, "little")
        assert uniform_below(bound, stream_of(too_high + bytes(4))) == 0


def test_uniform_below_reaches_every_value():
    """1,000 draws below 8; P(a value is missing) < 8 (7/8)^1000 < 1e-57."""
    stream = seeded_stream("uniform below")
    assert {uniform_below(8, stream) for _ in range(1000)} == set(range(8))


def test_the_clients_coins_come_from_the_operating_system():
    assert os_stream is os.urandom
