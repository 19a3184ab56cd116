"""The page that is made of all results."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import partial

from hubbub.decoder.watching.index import Tile, index_page
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
"""Days whose results the page shows or links."""


def write_overview(watch: WatchOptions, until: dt.date, faults: Sequence[Fault]) -> list[str]:
    """Write index.html.

    `until`: the last day that is due. `faults`: what couldn't be made. Returns results that can't
    be read, in words. Raises `OSError` if it can't be written.
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
    return unread
