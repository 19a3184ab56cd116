"""Which metrics of a registry clients report no more, or soon no more.

The same for `hubbub-collector check`, for the log at a service's start, its admin page and its
gauge, for the catalogue and for standing reports.
"""

from __future__ import annotations

import datetime as dt

from hubbub.protocol.metrics import Metric
from hubbub.protocol.plurals import counted
from hubbub.protocol.registry import Registry
from hubbub.reporting.findings import Finding, Level

SOON_DAYS = 30
"""Time for an app's next release to bring a new registry to most of its clients."""

NOTHING_ASKED = "nothing_asked"
CODES = ("metric_expired", "metric_expires_soon", "metric_over_budget", NOTHING_ASKED)
"""The codes of `ends`."""
_TOLERANCE = 1 + 1e-9  # as clients' ledgers have it


def ends(registry: Registry, today: dt.date) -> list[Finding]:
    """Return which metrics clients report no more, or soon no more, and whether any is left.

    Parameters
    ----------
    registry : Registry
    today : datetime.date
        In UTC. Clients report a metric on its last day still.
    """
    found, silent = [], set()
    budget = registry.lifetime_epsilon
    for metric in registry.values():
        days = (metric.expires - today).days
        if days < 0:
            text = f"expired on {metric.expires}: clients no longer report it"
            found.append(_warning("metric_expired", metric, text, days))
            silent.add(metric.name)
        elif days <= SOON_DAYS:
            text = f"expires on {metric.expires}, in {counted(days, 'day')}"
            found.append(_warning("metric_expires_soon", metric, text, days))
        if budget is not None and metric.price > budget * _TOLERANCE:
            silent.add(metric.name)
            text = (
                f"an answer costs {metric.price:.6g}, more than lifetime_epsilon = {budget:g}: no "
                "client reports it"
            )
            found.append(_warning("metric_over_budget", metric, text, metric.price))
    if len(silent) == len(registry):
        text = "clients report nothing: each one has expired or costs more than lifetime_epsilon"
        found.append(Finding(NOTHING_ASKED, "metrics", text, len(silent), Level.WARNING))
    return found


def _warning(code: str, metric: Metric, text: str, value: object) -> Finding:
    return Finding(code, f"metrics.{metric.name}", text, value, Level.WARNING)
