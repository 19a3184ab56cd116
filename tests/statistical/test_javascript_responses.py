"""The JavaScript client's sets, windows and asymmetric noise: exact chances of whole transcripts.

The clients draw with the system's coins, so there is no seed; every test states its false alarms.
"""

import itertools
import math

import numpy as np
import pytest

from parameters import long_but, quick_and_full
from significance import ALARM, FloatArray, chi_squared_p, unpack
from unit.javascript.node import run_program

CLIENTS = 40_000
AS_MANY_CLIENTS = pytest.mark.parametrize("clients", quick_and_full(CLIENTS // 4, CLIENTS))
"""Chances that are off by .03 are seen by the quarter, by .015 by all of them."""
COLOURS = {"type": "enum", "categories": ["red", "green", "blue", "white"]}
ONCE = {"mode": "once", "period_days": 30}
SET = {**COLOURS, **ONCE, "response": "subset", "size": 2, "q": 0.75}
ONE_OF = {**COLOURS, **ONCE, "response": "subset", "size": 1, "q": 0.5}
NUMBER = {"type": "number", **ONCE, "low": -1, "high": 1, "cells": 5, "window": 2, "q": 0.7}
BOOLEAN = {"type": "boolean", "f0": 0.0625, "f1": 0.5, "p": 0.25, "q": 0.75}


def subset_law(own: int, d: int, w: int, q: float) -> FloatArray:
    """Return the chance of each pattern of d bits."""
    held, other = q / math.comb(d - 1, w - 1), (1 - q) / math.comb(d - 1, w)
    law = np.zeros(2**d)
    for cells in itertools.combinations(range(d), w):
        law[sum(1 << cell for cell in cells)] = held if own in cells else other
    return law


def number_law(value: float) -> FloatArray:
    """Return the chance of each pattern of the number's 5 cells, from its two neighbours' of 4."""
    place = (value + 1) / 2 * 3
    below = min(int(place), 2)
    law = np.zeros(32)
    for position, weight in ((below, below + 1 - place), (below + 1, place - below)):
        for cell in range(5):
            near = position <= cell < position + 2
            law[1 << cell] += weight * (0.7 / 2 if near else 0.3 / 3)
    return law


def boolean_law(value: bool, reports: int) -> FloatArray:
    """Return the chance of each pattern of a bit in so many reports of one permanent response."""
    set_before = 1 - 0.5 if value else 0.0625
    law = np.zeros(2**reports)
    for pattern in range(2**reports):
        ones = pattern.bit_count()
        law[pattern] += set_before * 0.75**ones * 0.25 ** (reports - ones)
        law[pattern] += (1 - set_before) * 0.25**ones * 0.75 ** (reports - ones)
    return law


CASES = {
    "set": (SET, "green", subset_law(1, 4, 2, 0.75), subset_law(2, 4, 2, 0.75)),
    "randomized response": (ONE_OF, "red", subset_law(0, 4, 1, 0.5), subset_law(3, 4, 1, 0.5)),
    "number on the grid": (NUMBER, -1, number_law(-1), number_law(1)),
    "number between": (NUMBER, 0.1, number_law(0.1), number_law(0.1)),
}


def drawn(entry, values, label, folder, clients=CLIENTS):
    """Return the first bits of each client's reports of the values, as a number for each report."""
    job = {"entry": entry, "values": values, "stages": ["report"], "clients": clients}
    output = folder / "bits"
    stated = run_program("reports.js", job | {"label": label, "output": str(output)})
    bits = unpack(output.read_bytes(), 8 * len(values)).reshape(clients, len(values), 8)
    return bits @ (1 << np.arange(8)), stated


def fits(patterns, law):
    possible = law > 0
    counts = np.bincount(patterns, minlength=len(law))
    assert not counts[len(law) :].any()
    assert not counts[: len(law)][~possible].any(), "a report that the response doesn't give"
    return chi_squared_p(counts[: len(law)][possible], len(patterns) * law[possible]) > ALARM


@pytest.mark.parametrize(
    ("entry", "value", "law"), [case[:3] for case in CASES.values()], ids=CASES
)
@pytest.mark.long
def test_two_periods_reports_have_the_stated_chances_and_share_nothing(entry, value, law, tmp_path):
    """All pairs of reports, at least 50 of each expected; P(false alarm) < 1e-6."""
    patterns, _ = drawn(entry, [value, value], "periods", tmp_path)
    assert patterns.max() < len(law), "bits beyond the last cell"
    assert fits(patterns[:, 0] + len(law) * patterns[:, 1], np.outer(law, law).ravel())


@pytest.mark.parametrize(
    ("entry", "law", "other"),
    [(case[0], case[2], case[3]) for case in list(CASES.values())[:3]],
    ids=list(CASES)[:3],
)
def test_stated_epsilon_is_the_greatest_ratio_of_chances(entry, law, other, tmp_path):
    _, stated = drawn(entry, [0 if entry is NUMBER else "red"], "epsilon", tmp_path, clients=1)
    possible = law > 0
    assert np.log(law[possible] / other[possible]).max() == pytest.approx(stated["report"])


@AS_MANY_CLIENTS
@pytest.mark.parametrize("value", long_but("True", [False, True], str))
def test_reports_of_an_asymmetric_permanent_response_have_their_chances(value, clients, tmp_path):
    """All patterns of a boolean's bit in three reports; P(false alarm) < 1e-6."""
    patterns, _ = drawn(BOOLEAN, [value] * 3, f"asymmetric {value}", tmp_path, clients)
    bits = patterns & 1
    assert fits(bits @ (1 << np.arange(3)), boolean_law(value, 3))


@AS_MANY_CLIENTS
def test_unused_bits_of_a_boolean_go_through_the_same_noise(clients, tmp_path):
    """Patterns of two reports of bit 7, which is never set; P(false alarm) < 1e-6."""
    patterns, _ = drawn(BOOLEAN, [True] * 2, "unused", tmp_path, clients)
    assert fits((patterns >> 7) @ (1 << np.arange(2)), boolean_law(False, 2))
