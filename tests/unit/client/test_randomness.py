"""The sampler's two exact comparisons, checked outcome by outcome rather than on average."""

import itertools
import os
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from evaluation.reference import protocol
from factories import seeded_stream
from hubbub.client.randomness import (
    BernoulliSampler,
    ByteStream,
    KeyedStream,
    digit_codes,
    keyed_message,
    os_stream,
    uniform_below,
)

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
        drawn = BernoulliSampler(8, low, high).draw_by_rounds(selector, stream_of(coins))
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
    drawn = sampler.draw_by_rounds(selector, stream_of(coins))
    for index in range(lanes * rounds):
        turned = bytearray(coins)
        turned[index // 8] ^= 1 << index % 8
        difference = drawn ^ sampler.draw_by_rounds(selector, stream_of(bytes(turned)))
        assert difference in {0, 1 << index % lanes}


@pytest.mark.parametrize(
    ("low", "high"), [(8087 / 65536, 57442 / 65536), (1.0, 3 / 65536), (255.5 / 256, 0.5)]
)
def test_every_outcome_of_two_bytes_a_lane_has_exactly_its_probability(low, high):
    """All bytes of lanes 0 and 1 and all that undecided lanes read, enumerated: an equality."""
    sampler = BernoulliSampler(8, low, high)
    outcomes: Counter[int] = Counter()
    for one, two in itertools.product(range(256), repeat=2):
        undecided = (one, two).count(0)
        for tail in itertools.product(range(256), repeat=undecided):
            coins = bytes([1, 1, 1, 1, 1, 1, two, one, *tail])
            drawn = sampler.draw_by_bytes(0b01, stream_of(coins))
            outcomes[drawn & 3] += 256 ** (2 - undecided)
    for first, second in itertools.product((0, 1), repeat=2):
        chance = (Fraction(high) if first else 1 - Fraction(high)) * (
            Fraction(low) if second else 1 - Fraction(low)
        )
        assert Fraction(outcomes[first + 2 * second], 256**4) == chance


@given(low=chances, high=chances, lane=st.integers(0, 15), selector=st.integers(0, 2**16 - 1))
def test_undecided_lane_is_compared_to_the_last_digit(low, high, lane, selector):
    """The uniform number just below the probability gives 1, and the probability itself 0."""
    sampler = BernoulliSampler(16, low, high)
    chance = Fraction(high if selector >> lane & 1 else low)
    tail_bytes = max(0, (len(digit_codes(low, high)) - 1) // 8)

    def drawn(first: int, tail: int = 0) -> int:
        coins = bytearray(b"\1" * 16)
        coins[15 - lane] = first
        if first == 0:
            coins += tail.to_bytes(tail_bytes, "little")
        return sampler.draw_by_bytes(selector, stream_of(bytes(coins))) >> lane & 1

    ones = sum(drawn(first) for first in range(1, 256))
    below = (256 * chance - ones) * 256**tail_bytes
    assert below.denominator == 1
    assert 0 <= below <= 256**tail_bytes
    if below > 0:
        assert drawn(0, int(below) - 1) == 1
    if below < 256**tail_bytes:
        assert drawn(0, int(below)) == 0


def test_no_byte_is_used_by_two_lanes():
    """Another byte of a lane may change that lane, and no other."""
    lanes, undecided, selector = 32, (3, 8, 31), 0x5A5A5A5A
    sampler = BernoulliSampler(lanes, 0.3141, 0.8765)
    tail = (len(digit_codes(0.3141, 0.8765)) - 1) // 8
    coins = bytearray(byte or 1 for byte in seeded_stream("bytes")(lanes + 3 * tail))
    for lane in undecided:
        coins[lanes - 1 - lane] = 0
    owners = list(reversed(range(lanes)))
    for lane in reversed(undecided):
        owners += [lane] * tail
    drawn = sampler.draw_by_bytes(selector, stream_of(coins))
    moved = set()
    for index, owner in enumerate(owners):
        if index < lanes and owner in undecided:
            continue  # a lane that is decided after all leaves its other bytes to the next
        for byte in range(1, 256):
            changed = coins.copy()
            changed[index] = byte
            difference = drawn ^ sampler.draw_by_bytes(selector, stream_of(changed))
            assert difference in {0, 1 << owner}
            moved.add(difference)
    assert moved == {0} | {1 << lane for lane in range(lanes)}


def test_only_keyed_streams_are_bound_to_rounds():
    sampler, selector = BernoulliSampler(128, 0.1234, 0.8765), 2**64 - 1
    assert sampler.draw(selector, KeyedStream(b"a")) == sampler.draw_by_rounds(
        selector, KeyedStream(b"a")
    )
    assert sampler.draw(selector, KeyedStream(b"a").__call__) == sampler.draw_by_bytes(
        selector, KeyedStream(b"a")
    )


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
