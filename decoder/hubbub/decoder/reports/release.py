"""No result from a handful of reports.

Each report is private by itself, whoever decodes it; this is a second fence, against results that
are about few enough people to be about somebody, and against reading noise as news.
"""

from __future__ import annotations

import datetime as dt

from hubbub.decoder.errors import UndecodableError
from hubbub.protocol.metrics import Metric

MIN_REPORTS = 1_000
"""Fewest reports that are decoded unless the operator says otherwise (docs/poisoning.md)."""


def require_reports(
    metric: Metric,
    found: int,
    needed: int,
    since: dt.date | None = None,
    until: dt.date | None = None,
) -> None:
    """Refuse a metric's version with fewer than the needed reports in the decoded days.

    Raises
    ------
    UndecodableError
        It says how many there are, how many are needed, and what changes that.
    """
    days = f"from {since or 'the start'} to {until or 'now'}"
    source = f"{metric.name} version {metric.version} {days}"
    require_enough(source, found, needed, "decode more days, or ")


def require_enough(source: str, found: int, needed: int, otherwise: str = "") -> None:
    """Refuse a source with fewer than the needed reports.

    Parameters
    ----------
    source : str
        Whose reports they are.
    found, needed : int
    otherwise : str
        What the operator may do besides changing the threshold.

    Raises
    ------
    UndecodableError
        It says how many there are, how many are needed, and what changes that.
    """
    if found < needed:
        raise UndecodableError(
            f"{found:,} reports of {source}: at least {needed:,} are needed for a release; "
            f"{otherwise}change --min-reports (HUBBUB_MIN_REPORTS)"
        )
