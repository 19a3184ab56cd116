"""MurmurHash3_x86_128 as its author published it, in plain Python."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_C = (0x239B961B, 0xAB0E9789, 0x38B34AE5, 0xA1E38B93)
_BODY = (  # rotation of the multiplied block, rotation of the state, constant added
    (15, 19, 0x561CCD1B),
    (16, 17, 0x0BCAA747),
    (17, 15, 0x96CD1C35),
    (18, 13, 0x32AC3B17),
)


def murmur3_x86_128(data: bytes, seed: int = 0) -> tuple[int, int, int, int]:
    """Return the four 32-bit words of the hash."""
    state = [seed] * 4
    whole = len(data) // 16 * 16
    for start in range(0, whole, 16):
        for i, (multiplied, rotated, constant) in enumerate(_BODY):
            block = int.from_bytes(data[start + 4 * i : start + 4 * i + 4], "little")
            state[i] ^= _scramble(block, i, multiplied)
            state[i] = (_rotate(state[i], rotated) + state[(i + 1) % 4]) & _MASK
            state[i] = (state[i] * 5 + constant) & _MASK
    for i, (multiplied, _, _) in enumerate(_BODY):
        rest = data[whole + 4 * i : whole + 4 * i + 4]
        state[i] ^= _scramble(int.from_bytes(rest, "little"), i, multiplied)
    state = [word ^ len(data) for word in state]
    state = _mix_words([fmix32(word) for word in _mix_words(state)])
    return state[0], state[1], state[2], state[3]


def fmix32(x: int) -> int:
    """Return MurmurHash3's finalizer of a 32-bit word."""
    x ^= x >> 16
    x = x * 0x85EBCA6B & _MASK
    x ^= x >> 13
    x = x * 0xC2B2AE35 & _MASK
    return x ^ x >> 16


def _scramble(block: int, i: int, rotation: int) -> int:
    multiplied = _rotate(block * _C[i] & _MASK, rotation)
    return multiplied * _C[(i + 1) % 4] & _MASK


def _mix_words(words: list[int]) -> list[int]:
    first = sum(words) & _MASK
    return [first] + [(word + first) & _MASK for word in words[1:]]


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> 32 - by) & _MASK
