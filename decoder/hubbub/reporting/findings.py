"""Findings about estimates and registries.

A finding has a code for programs and words for people; no code reads the words. Needs no package
but the protocol, so that a collector has it at its start. Metrics that clients no longer
report are worded here for `hubbub-collector check`, the log at a service's start, its admin page,
its gauge, the catalogue and standing reports.
"""

from __future__ import annotations

import datetime as dt
from enum import IntEnum
from typing import NamedTuple

from hubbub.protocol import Metric, Registry, counted


class Level(IntEnum):
    """How much a finding matters to a reader.

    A fact belongs to the picture; a warning must not be overlooked; honest clients would hardly
    cause an alarm.
    """

    FACT = 0
    WARNING = 1
    ALARM = 2


class Finding(NamedTuple):
    """A sentence or value about the rows."""

    code: str  # names it for programs, and never changes: "detection_limit"
    # Names it for people, where findings stand one below the other; empty: `text` is a sentence.
    label: str
    text: str  # what was found, in words
    value: object = None  # the number behind it, or None: anything that JSON has
    level: Level = Level.FACT

    @property
    def shown(self) -> str:
        """The text as people see it: an alarm begins with one."""
        return f"SUSPICIOUS: {self.text}" if self.level is Level.ALARM else self.text

    @property
    def labelled(self) -> str:
        """The text as people see it by itself, behind its label if it has one."""
        return f"{self.label}: {self.shown}" if self.label else self.shown

    def as_json(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return {
            "level": self.level.name.lower(),
            "code": self.code,
            "label": self.label,
            "value": self.value,
            "text": self.text,
        }


SOON_DAYS = 30
"""Time for an app's next release to bring a new registry to most of its clients."""

NOTHING_ASKED = "nothing_asked"
END_CODES = ("metric_expired", "metric_expires_soon", "metric_over_budget", NOTHING_ASKED)
"""The codes of `registry_ends`."""
_TOLERANCE = 1 + 1e-9  # as clients' ledgers have it


def registry_ends(registry: Registry, today: dt.date) -> list[Finding]:
    """Return which metrics have ended on a UTC day, which end soon, and whether any is left."""
    found, silent = [], set()
    budget = registry.lifetime_epsilon
    for metric in registry.values():
        days = (metric.expires - today).days
        if days < 0:
            text = f"expired on {metric.expires}: clients no longer report it"
            found.append(metric_warning("metric_expired", metric, text, days))
            silent.add(metric.name)
        elif days <= SOON_DAYS:
            text = f"expires on {metric.expires}, in {counted(days, 'day')}"
            found.append(metric_warning("metric_expires_soon", metric, text, days))
        if budget is not None and metric.price > budget * _TOLERANCE:
            silent.add(metric.name)
            text = (
                f"an answer costs {metric.price:.6g}, more than lifetime_epsilon = {budget:g}: no "
                "client reports it"
            )
            found.append(metric_warning("metric_over_budget", metric, text, metric.price))
    if len(silent) == len(registry):
        text = "clients report nothing: each one has expired or costs more than lifetime_epsilon"
        found.append(Finding(NOTHING_ASKED, "metrics", text, len(silent), Level.WARNING))
    return found


def metric_warning(code: str, metric: Metric, text: str, value: object) -> Finding:
    """Return a warning about a metric of a registry."""
    return Finding(code, f"metrics.{metric.name}", text, value, Level.WARNING)
