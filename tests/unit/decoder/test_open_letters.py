"""The letter model of open strings: what has a chance is UTF-8, and all UTF-8 has one."""

from functools import cache

import numpy as np
from hypothesis import given, strategies as st

from hubbub.inference import END, Mixture, contexts_at, state_after


@cache
def start() -> Mixture:
    return Mixture.at_start()


def chances_along(symbols: list[int]) -> list[float]:
    row, states, chances = np.array([symbols]), np.zeros(1, dtype=np.int64), []
    for place, symbol in enumerate(symbols):
        before, last = contexts_at(row, place)
        chances.append(float(start().chances(0, before, last, states)[0, symbol]))
        states = state_after(states, row[:, place])
    return chances


@given(st.binary(min_size=1, max_size=4))
def test_bytes_that_end_with_a_chance_are_utf_8(data):
    possible = all(chance > 0 for chance in chances_along([*data, END]))
    try:
        data.decode()
    except UnicodeDecodeError:
        assert not possible
    else:
        assert possible
