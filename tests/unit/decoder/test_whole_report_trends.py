"""Whole reports day by day: shares from all days' centre, however far a day is from it."""

import datetime as dt
from collections.abc import Mapping

import numpy as np
import pytest

from factories import make_params
from hubbub.decoder import Decoding, count_records, decode
from hubbub.inference import Trends, decode_reports, decode_whole_days, hashed, pack
from hubbub.simulations import SimulatedClients, as_records

PARAMS = make_params(k=16, h=2, m=8, f=0.1, p=0.1, q=0.8)
FIRST = dt.date(2026, 11, 1)
VALUES = ("a", "b", "c")
NAMES = (*VALUES, *(f"absent {i}" for i in range(9)))
DAYS = ((2500, 1000, 500), (2400, 1000, 600), (500, 1000, 2500), (600, 1000, 2400))
LISTED = hashed(NAMES, PARAMS)


def records_by_day(names: tuple[str, ...] = VALUES) -> dict[dt.date, bytes]:
    clients = SimulatedClients(names, PARAMS, np.random.default_rng(12))
    return {
        FIRST + dt.timedelta(days=day): as_records(*clients.report(np.repeat(np.arange(3), held)))
        for day, held in enumerate(DAYS)
    }


def follow(records: Mapping[dt.date, bytes]) -> Trends[Decoding] | None:
    together = b"".join(records.values())
    counted = decode(count_records(together, PARAMS), PARAMS, LISTED)
    pooled = decode_reports(pack([together], PARAMS), counted, LISTED, reason="asked for")
    by_day = {day: count_records(each, PARAMS) for day, each in records.items()}
    packed = {day: pack([each], PARAMS) for day, each in records.items()}
    return decode_whole_days(by_day, packed, pooled, LISTED, min_reports=1_000)


@pytest.fixture(scope="module")
def trends() -> Trends[Decoding]:
    found = follow(records_by_day())
    assert found
    return found


def test_days_far_from_all_days_together_are_estimated_without_bias(trends):
    """Within 5.3 standard errors, 16 values: P(false alarm) < 1e-6 each; seeded."""
    assert set(trends.followed) == set(VALUES)
    order = [VALUES.index(name) for name in trends.followed]
    truth = np.array(DAYS)[:, order] / 4000
    off = (trends.share[:, 1:] - truth) / trends.std_error[:, 1:]
    assert np.abs(off).max() < 5.3
    assert np.abs(trends.share[:, 0] / trends.std_error[:, 0]).max() < 5.3
    assert trends.share.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-3)


def test_change_is_marked_on_its_day(trends):
    marked = {
        name: [change.day for change in changes]
        for name, changes in zip(trends.followed, trends.found.changes[1:], strict=True)
    }
    assert marked == {"a": [2], "b": [], "c": [2]}


def test_nothing_detected_leaves_nothing_to_follow():
    assert follow(records_by_day(("x", "y", "z"))) is None
