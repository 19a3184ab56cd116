"""The folder of a standing report: one result for each report and day, written once.

FOLDER/REPORT/DAY.parquet is the result, with its provenance; DAY.html is the same for people, and
DAY-by-day has the window's days one by one. Invariant: DAY.parquet is written last, so a result
that is there is whole; and all else in the folder is made of results alone.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from hubbub.reporting.estimates import Estimates, Finding, Level
from hubbub.reporting.formats.data_files import write_parquet
from hubbub.reporting.formats.files import atomic_write
from hubbub.reporting.formats.html_page import write_html

INDEX: Final = "index.html"
BY_DAY: Final = "-by-day"
WATCH: Final = "watch"
"""The key of a result's metadata under which is what only a standing report knows."""


@dataclass(frozen=True, slots=True)
class Result:
    """A result that was kept.

    Attributes
    ----------
    report : str
        Its folder: the report's name, and the slice behind a "/" if there are several.
    day : datetime.date
        UTC; the last that it is about.
    rows : mapping of str to sequence
        Columns by their names; None where nothing is known.
    keys : tuple of str
        Which columns name a row.
    document : mapping of str to object
        All else that `Estimates.document` has.
    """

    report: str
    day: dt.date
    rows: Mapping[str, Sequence[Any]]
    keys: tuple[str, ...]
    document: Mapping[str, Any]

    @property
    def watch(self) -> Mapping[str, Any]:
        """What `hubbub.decoder.watching.running` noted of it."""
        known: Mapping[str, Any] = self.document[WATCH]
        return known

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was said beside the rows."""
        return findings_of(self.document.get("findings", ()))

    @property
    def news(self) -> tuple[Finding, ...]:
        """Which of it no earlier result said."""
        return findings_of(self.watch["news"])

    def names(self) -> list[str]:
        """Return the rows' names."""
        return names_of([self.rows[key] for key in self.keys])

    def shares(self) -> dict[str, tuple[float, float]]:
        """Return each row's share and its standard error by the row's name."""
        if "proportion" not in self.rows:
            return {}
        columns = (self.rows[name] for name in ("proportion", "prop_std_error"))
        found = zip(self.names(), *columns, strict=True)
        return {name: (share, error) for name, share, error in found if error is not None}


def names_of(columns: Sequence[Sequence[str]]) -> list[str]:
    """Return rows' names: their keys, joined if there are several."""
    return [" · ".join(names) for names in zip(*columns, strict=True)]


def findings_of(listed: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """Return findings from JSON: what `Finding.as_json` returned."""
    return tuple(
        Finding(each["code"], each["label"], each["text"], each["value"], _level(each["level"]))
        for each in listed
    )


def _level(name: str) -> Level:
    return Level[name.upper()]


def days_of(folder: Path, report: str) -> list[dt.date]:
    """Return the days that have a result, in order."""
    found = []
    for path in (folder / report).glob("????-??-??.parquet"):
        with contextlib.suppress(ValueError):
            found.append(dt.date.fromisoformat(path.stem))
    return sorted(found)


def reports_in(folder: Path) -> list[str]:
    """Return the reports that have a result, by name."""
    paths = folder.glob("**/????-??-??.parquet")
    return sorted({path.parent.relative_to(folder).as_posix() for path in paths})


def write_result(
    folder: Path, report: str, day: dt.date, window: Estimates, days: Estimates | None
) -> None:
    """Write a day's result, its Parquet file last.

    Raises
    ------
    OSError
        If something can't be written; then there is no result.
    """
    target = folder / report
    target.mkdir(parents=True, exist_ok=True)
    top = "../" * (report.count("/") + 1) + INDEX
    together, apart = f"{day}.html", f"{day}{BY_DAY}.html"
    if days is not None:
        links = {"All reports": top, "All days together": together}
        atomic_write(target / apart, partial(write_html, _linked(days, links)))
        atomic_write(target / f"{day}{BY_DAY}.parquet", partial(write_parquet, days))
    if window.page is not None:
        links = {"All reports": top} | ({} if days is None else {"Day by day": apart})
        atomic_write(target / together, partial(write_html, _linked(window, links)))
    atomic_write(target / f"{day}.parquet", partial(write_parquet, window))


def _linked(estimates: Estimates, links: Mapping[str, str]) -> Estimates:
    page = estimates.report()
    return replace(estimates, page=replace(page, links={**links, **(page.links or {})}))


def read_result(folder: Path, report: str, day: dt.date) -> Result:
    """Read a result.

    Raises
    ------
    OSError, ValueError
        If it can't be read, or isn't one.
    """
    rows, document = _read(folder / report / f"{day}.parquet")
    return Result(report, day, rows, tuple(document[WATCH]["keys"]), document)


def read_days(folder: Path, report: str, day: dt.date) -> tuple[Mapping[str, Any], Any] | None:
    """Return the columns and the document of a result's days one by one; None: it has none."""
    path = folder / report / f"{day}{BY_DAY}.parquet"
    return _read(path) if path.exists() else None


def _read(path: Path) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    import pyarrow.parquet  # noqa: PLC0415 - takes half a second to import

    table = pyarrow.parquet.read_table(path)
    document = {
        name.decode().removeprefix("hubbub."): json.loads(value)
        for name, value in (table.schema.metadata or {}).items()
        if name.startswith(b"hubbub.")
    }
    return table.to_pydict(), document


def latest_results(folder: Path) -> Iterator[Result]:
    """Yield the newest result of each report, by name."""
    for report in reports_in(folder):
        yield read_result(folder, report, days_of(folder, report)[-1])
