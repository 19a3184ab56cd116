"""Section 10 of docs/protocol: when a client's periods begin, and its metric of a group."""

from __future__ import annotations

from typing import Any

from evaluation.reference import protocol

DAY = 86_400

Json = dict[str, Any]


def group_of(registry: Json, metric: str) -> tuple[str, Json] | None:
    groups = registry.get("groups", {}).items()
    return next(((name, group) for name, group in groups if metric in group["metrics"]), None)


def shared_name(registry: Json, metric: str) -> str:
    """Return what a metric's first days are drawn for."""
    group = group_of(registry, metric)
    return f"group:{group[0]}" if group else f"metric:{metric}"


def first_day(secret: bytes, application: str, name: str, period_days: int, number: int) -> int:
    message = day_message(secret, application, name, number)
    after = protocol.uniform_below(period_days, protocol.Stream(message))
    return number * period_days + after


def day_message(secret: bytes, application: str, name: str, number: int) -> bytes:
    names = (application.encode(), name.encode())
    return protocol.message(b"hubbub/1/first-day", secret, *names, eight_bytes(number))


def eight_bytes(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def period(
    time: float, secret: bytes, application: str, name: str, period_days: int
) -> tuple[int, bool]:
    """Return the number of the period, and whether it is its first day."""
    today = int(time // DAY)
    number = today // period_days
    if today < first_day(secret, application, name, period_days, number):
        number -= 1
    return number, today == first_day(secret, application, name, period_days, number)


def choice(secret: bytes, application: str, name: str, group: Json, number: int) -> str:
    """Return the metric that a client has of a group, in the period with this number."""
    of_period = group.get("choice") == "period"
    detail = [eight_bytes(number)] if of_period else []

    def weight(metric: str) -> int:
        names = (application.encode(), name.encode(), metric.encode())
        data = protocol.message(b"hubbub/1/choice", secret, *names, *detail)
        return int.from_bytes(protocol.shake(data, 16), "big")

    metrics: list[str] = group["metrics"]
    return max(metrics, key=weight)
