"""When a client's periods begin, and which metric of a group it answers.

Both are pure functions of the client's secret, so that all processes agree and nothing is stored.
Invariant: neither depends on a value, so whether a client is silent says nothing about its answers.
"""

from __future__ import annotations

from hubbub.client.randomness import KeyedStream, keyed_message, uniform_below
from hubbub.protocol.metrics import Metric
from hubbub.protocol.registry import Group

_PHASE_TAG = b"hubbub/1/phase"
_CHOICE_TAG = b"hubbub/1/choice"
_WEIGHT_BYTES = 16
_PERIOD_BYTES = 8


def phase(metric: Metric, secret: bytes) -> int:
    """Return the days by which a client's periods begin before those of the calendar.

    Uniform over secrets, from 0 to ``period_days - 1``, so that each day is the first of a period
    for an equal share of clients. The same for all metrics of a group, and for all versions. Only
    mode "once" has a phase: the periods of a permanent response are those of the calendar.
    """
    if metric.mode != "once":
        return 0
    name = f"group:{metric.group}" if metric.group else f"metric:{metric.name}"
    message = keyed_message(_PHASE_TAG, secret, metric.application.encode(), name.encode())
    return uniform_below(metric.period_days, KeyedStream(message))


def chosen(group: Group, application: str, secret: bytes, period: int = 0) -> str:
    """Return the metric of a group that a client answers, uniform over secrets.

    Each metric has a keyed random weight, and the greatest wins (rendezvous hashing): a metric that
    joins the group takes an equal share of clients from every other, and no client changes between
    two that stay.

    Parameters
    ----------
    group : Group
    application : str
    secret : bytes
    period : int
        Number of the period, for a group whose choice is "period".
    """
    moment = (period.to_bytes(_PERIOD_BYTES, "little"),) if group.choice == "period" else ()

    def weight(metric: str) -> bytes:
        parts = (secret, application.encode(), group.name.encode(), metric.encode(), *moment)
        return KeyedStream(keyed_message(_CHOICE_TAG, *parts))(_WEIGHT_BYTES)

    return max(sorted(group.metrics), key=weight)
