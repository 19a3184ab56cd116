"""The metrics that a client reports now: its periods, its groups, samples and the switch.

All follow from the client's secret, so that all processes agree. Invariants: none depends on a
value, so a client's silence reveals nothing about its answers; periods begin on days that are
independent of each other, so that days link no two reports; and what the switch has off is neither
recorded, charged nor sent, while answers, accounts and periods stay as they were.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from hubbub.client.randomness import KeyedStream, keyed_message, uniform_below
from hubbub.protocol.metrics import SECONDS_A_DAY, Metric
from hubbub.protocol.registry import Group

if TYPE_CHECKING:
    from hubbub.protocol.switch import SwitchDocument

SWITCHED_OFF = "switched off"
NOT_SAMPLED = "not in the sample"
_DAY_TAG = b"hubbub/1/first-day"
_CHOICE_TAG = b"hubbub/1/choice"
_SAMPLE_TAG = b"hubbub/1/sample"
_WEIGHT_BYTES = 16  # two metrics weigh the same with chance 2^-128
_NUMBER_BYTES = 8  # a period's number is a 64-bit integer in the protocol (section 10)
_NUMBERS = 2**64  # two's complement: periods before the epoch are negative


class Period(NamedTuple):
    """A client's period: its number, its first day, and the day after its last, from the epoch."""

    number: int
    first_day: int
    end_day: int


def first_day(metric: Metric, secret: bytes, period: int) -> int:
    """Return the day, counted from the epoch, on which a client's period begins.

    With mode "once" it is uniform among the days of the calendar's period and independent of every
    other period's, so days link no two reports. It is the same for all metrics of a group, and for
    all versions. A permanent response has the calendar's periods.
    """
    days = metric.period_days
    if metric.mode != "once":
        return period * days
    name = f"group:{metric.group}" if metric.group else f"metric:{metric.name}"
    parts = (secret, metric.application.encode(), name.encode(), _number(period))
    return period * days + uniform_below(days, KeyedStream(keyed_message(_DAY_TAG, *parts)))


def period_at(metric: Metric, secret: bytes, seconds: float) -> Period:
    """Return a client's period at a moment, in seconds since the epoch.

    It lasts until the next one begins: 1 to 2 `period_days` - 1 days.
    """
    day = int(seconds // SECONDS_A_DAY)
    number = day // metric.period_days
    begins = first_day(metric, secret, number)
    if day >= begins:
        return Period(number, begins, first_day(metric, secret, number + 1))
    return Period(number - 1, first_day(metric, secret, number - 1), begins)


def chosen(group: Group, application: str, secret: bytes, period: int = 0) -> str:
    """Return the metric of a group that a client answers, uniform over secrets.

    Each metric has a keyed random weight, and the greatest wins (rendezvous hashing): a metric that
    joins takes an equal share of clients from every other, and no client changes between two that
    stay. `period`: for a group whose choice is "period".
    """
    moment = (_number(period),) if group.choice == "period" else ()

    def weight(metric: str) -> bytes:
        parts = (secret, application.encode(), group.name.encode(), metric.encode(), *moment)
        return KeyedStream(keyed_message(_CHOICE_TAG, *parts))(_WEIGHT_BYTES)

    return max(sorted(group.metrics), key=weight)


def sample_draw(metric: str, application: str, secret: bytes, period: int | None) -> float:
    """Return a client's number for a metric, uniform in [0, 1) over secrets.

    A client is in a sample of rate r if its number is below r, so a sample is part of every larger
    one. Each period has another number: one for life would link two periods' reports more closely.
    None: the metric has no periods, and its number is for life.
    """
    moment = () if period is None else (_number(period),)
    parts = (secret, application.encode(), metric.encode(), *moment)
    stream = KeyedStream(keyed_message(_SAMPLE_TAG, *parts))
    return (int.from_bytes(stream(7), "little") >> 3) / 2**53


class Switch:
    """The metrics that are off for one client.

    `secret`: the client's, which decides its samples. `asked`: when it was asked for
    last, in seconds since the epoch.
    """

    def __init__(
        self,
        document: SwitchDocument | None = None,
        secret: bytes = b"",
        asked: float = -math.inf,
    ) -> None:
        self.document = document
        self._secret = secret
        self._asked = asked
        self._reasons: dict[tuple[str, int, int | None], str | None] = {}

    def is_off(self, metric: str, version: int) -> bool:
        """Whether no client reports a metric's version."""
        return self.document is not None and self.document.rate(metric, version) == 0

    def refusal(self, metric: str, version: int, period: int | None = None) -> str | None:
        """Return why this client doesn't report a metric's version in a period, if so."""
        document, key = self.document, (metric, version, period)
        if document is None or not document.rates:
            return None
        if key not in self._reasons:
            rate, reason = document.rate(metric, version), None
            if rate == 0:
                reason = SWITCHED_OFF
            elif sample_draw(metric, document.application, self._secret, period) >= rate:
                reason = NOT_SAMPLED
            self._reasons[key] = reason
        return self._reasons[key]

    def is_due(self, now: float) -> bool:
        """Whether a day has passed since it was asked for; also if a clock was set back."""
        return not self._asked <= now < self._asked + SECONDS_A_DAY


NO_SWITCH = Switch()


def _number(period: int) -> bytes:
    return (period % _NUMBERS).to_bytes(_NUMBER_BYTES, "little")
