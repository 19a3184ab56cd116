"""The files that are made of all results: the index page and the feeds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import partial

from hubbub.decoder.watching.index import JSON_FEED, RSS, index_page, json_feed, rss_feed
from hubbub.decoder.watching.options import Watch
from hubbub.decoder.watching.results import (
    INDEX,
    days_of,
    read_days,
    read_result,
    reports_in,
)
from hubbub.decoder.watching.running import Fault
from hubbub.reporting.formats.files import atomic_write
from hubbub.reporting.formats.html_page import write_html

_FEED_DAYS = 30
"""Of which feeds tell: a reader that was away for its holidays misses nothing."""


def write_overview(watch: Watch, faults: Sequence[Fault]) -> None:
    """Write index.html, feed.xml and feed.json.

    Raises
    ------
    OSError
        If one can't be written.
    """
    folder, application = watch.output, watch.registry.application
    tiles, recent = [], []
    for report in reports_in(folder):
        kept = days_of(folder, report)
        newest = read_result(folder, report, kept[-1])
        tiles.append((newest, read_days(folder, report, kept[-1]), kept))
        since = kept[-1] - dt.timedelta(days=_FEED_DAYS)
        recent += [read_result(folder, report, day) for day in kept if day > since]
    why = {each.report: f"{each.error}" for each in faults}
    atomic_write(folder / INDEX, partial(write_html, index_page(application, tiles, why)))
    for name, data in (
        (RSS, rss_feed(application, watch.url, recent)),
        (JSON_FEED, json_feed(application, watch.url, recent)),
    ):
        atomic_write(folder / name, lambda file, data=data: file.write(data))  # type: ignore[misc]
