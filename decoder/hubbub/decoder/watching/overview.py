"""The files that are made of all results: the index page and the feeds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import partial
from typing import BinaryIO

from hubbub.decoder.watching.index import JSON_FEED, RSS, Tile, index_page, json_feed, rss_feed
from hubbub.decoder.watching.options import WatchOptions
from hubbub.decoder.watching.results import (
    INDEX,
    WatchError,
    days_of,
    read_days,
    read_result,
    reports_in,
)
from hubbub.decoder.watching.running import Fault
from hubbub.reporting.formats.files import atomic_write
from hubbub.reporting.formats.html import write_html

_RECENT = dt.timedelta(days=30)
"""Of which feeds tell: a reader that was away for its holidays misses nothing."""


def write_overview(watch: WatchOptions, until: dt.date, faults: Sequence[Fault]) -> list[str]:
    """Write index.html, feed.xml and feed.json.

    Parameters
    ----------
    watch : WatchOptions
    until : datetime.date
        The last day that is due.
    faults : sequence of Fault
        What couldn't be made.

    Returns
    -------
    list of str
        Results that can't be read, in words.

    Raises
    ------
    OSError
        If one can't be written.
    """
    folder, application = watch.output, watch.registry.application
    why, tiles, unread = {each.report: f"{each.error}" for each in faults}, [], []
    for report in reports_in(folder, watch.names):
        kept = days_of(folder, report, until)
        try:
            results = [read_result(folder, report, day) for day in kept if day > kept[-1] - _RECENT]
            days = read_days(folder, report, kept[-1]) if kept else None
            if results:
                _ = results[-1].rows  # which the page needs: damage is to be found here
                tiles.append(Tile(results, None if days is None else days.rows, until))
        except WatchError as error:
            why[report] = f"{error}"
            unread.append(f"{error}")
    page = index_page(application, tiles, why, watch.level)
    atomic_write(folder / INDEX, partial(write_html, page))
    results = [result for tile in tiles for result in tile.results]
    for name, feed in ((RSS, rss_feed), (JSON_FEED, json_feed)):
        data = feed(application, watch.url, results, watch.level)
        atomic_write(folder / name, partial(_write, data))
    return unread


def _write(data: bytes, file: BinaryIO) -> None:
    file.write(data)
