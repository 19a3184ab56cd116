"""What a standing report announces: false alarms in thirty results, where some shares changed."""

import datetime as dt
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hubbub.decoder.watching.news import newly_changed
from hubbub.inference import Correction
from hubbub.inference.trends.decoding import _tested
from parameters import number_of_runs
from significance import ALARM, FloatArray

_FIRST = dt.date(2024, 1, 1)
_SERIES, _DAYS, _LOOKS, _SHIFT = 10, 14, 30, 8.0
_BOUND = 0.05 / (2 * _LOOKS * _SERIES)


def _series(values: FloatArray, start: int) -> list[dict[str, Any]]:
    """Return the changes of a window's series, as a result keeps them."""
    first = _FIRST + dt.timedelta(days=start)
    found = _tested(
        values,
        np.ones_like(values),
        np.zeros(values.shape[1]),
        first.weekday(),
        0.05,
        Correction.BH,
    )
    return [
        {
            "kind": "string",
            "string": f"{number}",
            "changes": [
                {
                    "form": each.form,
                    "day": f"{first + dt.timedelta(days=each.day)}",
                    "before": each.before,
                    "after": each.after,
                    "sure": each.p_value <= _BOUND,
                    "text": "",
                }
                for each in changes
            ],
        }
        for number, changes in enumerate(found.changes)
    ]


@pytest.mark.long
def test_changes_elsewhere_make_no_false_announcements():
    """Half of ten series shift once by 8 standard errors; whatever else is announced is false.

    Windows of 14 days that move on by one, 30 results: with a chance of alpha / 2 = .025 at most
    one is announced. Exact binomial bound: P(false alarm) <= 1e-6. Changes that the day's own test
    marks are false in most runs, so it is the stricter bound that keeps them out; and all true
    shifts are announced.
    """
    runs = number_of_runs(18)
    rng, change = np.random.default_rng(5), _DAYS + 2
    day = _FIRST + dt.timedelta(days=change)
    wrong = marked = 0
    announced: list[tuple[str, bool, str]]
    found: set[int]
    for _ in range(runs):
        values = rng.normal(0, 1, (_DAYS + _LOOKS, _SERIES))
        values[change:, : _SERIES // 2] += _SHIFT
        announced, found = [], set()
        is_wrong = marks_more = False
        for look in range(1, _LOOKS + 1):
            series = _series(values[look : look + _DAYS], look)
            marks_more |= any(each["changes"] for each in series[_SERIES // 2 :])
            for finding in newly_changed(series, announced):
                value: Any = finding.value
                name, rose = int(value["name"]), value["rose"]
                off = abs((dt.date.fromisoformat(value["day"]) - day).days)
                true = name < _SERIES // 2 and rose and off <= 3
                announced.append((value["name"], rose, value["day"]))
                is_wrong |= not true
                found |= {name} if true else set()
        wrong += is_wrong
        marked += marks_more
        assert found == set(range(_SERIES // 2))
    assert stats.binom.sf(wrong - 1, runs, 0.025) > ALARM
    assert marked > runs / 2
