"""Section 11 of docs/protocol: when a client's periods begin, and its metric of a group."""

from __future__ import annotations

from typing import Any

from evaluation.reference import protocol

DAY = 86_400

Json = dict[str, Any]


def group_of(registry: Json, metric: str) -> tuple[str, Json] | None:
    """Return the group that holds a metric, and its name."""
    groups = registry.get("groups", {}).items()
    return next(((name, group) for name, group in groups if metric in group["metrics"]), None)


def phase_name(registry: Json, metric: str) -> str:
    group = group_of(registry, metric)
    return f"group:{group[0]}" if group else f"metric:{metric}"


def phase(secret: bytes, application: str, name: str, period_days: int) -> int:
    return protocol.uniform_below(
        period_days, protocol.Stream(phase_message(secret, application, name))
    )


def phase_message(secret: bytes, application: str, name: str) -> bytes:
    return protocol.message(b"hubbub/1/phase", secret, application.encode(), name.encode())


def period(time: float, period_days: int, days_before: int) -> int:
    return int((time // DAY + days_before) // period_days)


def choice(secret: bytes, application: str, name: str, group: Json, number: int) -> str:
    """Return the metric that a client has of a group, in the period with this number."""
    of_period = group.get("choice") == "period"
    detail = [number.to_bytes(8, "little")] if of_period else []

    def weight(metric: str) -> int:
        names = (application.encode(), name.encode(), metric.encode())
        data = protocol.message(b"hubbub/1/choice", secret, *names, *detail)
        return int.from_bytes(protocol.shake(data, 16), "big")

    metrics: list[str] = group["metrics"]
    return max(metrics, key=weight)
