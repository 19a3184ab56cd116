"""The folder of a standing report: one result for each report and day, written once.

FOLDER/REPORT/DAY.parquet is the result, with its provenance; DAY.html is the same for people, and
DAY-by-day has the window's days one by one. Invariant: DAY.parquet is written last, so a result
that is there is whole; and all else in the folder is made of results alone.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from hubbub.protocol import HubbubError
from hubbub.reporting import Estimates, Finding, Level, atomic_write, write_html, write_parquet

INDEX: Final = "index.html"
BY_DAY: Final = "-by-day"
WATCH: Final = "watch"
"""The key of a result's metadata under which is what only a standing report knows."""


class WatchError(HubbubError):
    """A standing report that can't be made."""


@dataclass(frozen=True)
class Result:
    """A result that was kept; its rows are read when they are needed."""

    report: str  # its folder: the report's name, and the slice behind a "/" if there are several
    day: dt.date  # UTC; the last that it is about
    document: Mapping[str, Any]  # what `Estimates.document` has, but the rows
    path: Path  # the Parquet file

    @cached_property
    def rows(self) -> Mapping[str, Sequence[Any]]:
        """Columns by their names; None where nothing is known."""
        return _rows(self.path)

    @property
    def watch(self) -> Mapping[str, Any]:
        """The notes of `hubbub.decoder.watching.running` about it."""
        known: Mapping[str, Any] = self.document[WATCH]
        return known

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings besides its rows."""
        return findings_of(self.document.get("findings", ()))

    @property
    def news(self) -> tuple[Finding, ...]:
        """The findings that no earlier result had."""
        return findings_of(self.watch["news"])

    @property
    def title(self) -> str:
        """The report's name as people read it: "crashed, platform mac"."""
        return self.report.replace("/", ", ").replace("=", " ", 1)

    def names(self) -> list[str]:
        """Return the rows' names."""
        return names_of([self.rows[key] for key in self.watch["keys"]])

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


def days_of(folder: Path, report: str, until: dt.date = dt.date.max) -> list[dt.date]:
    """Return the days that have a result, in order; of a wrong clock some may be in the future."""
    found = []
    for path in (folder / report).glob("????-??-??.parquet"):
        with contextlib.suppress(ValueError):
            found.append(dt.date.fromisoformat(path.stem))
    return sorted(day for day in found if day <= until)


def reports_in(folder: Path, names: Collection[str]) -> list[str]:
    """Return the reports of some names that have a result, each slice by itself, in order."""
    found = {
        path.parent.relative_to(folder).as_posix()
        for name in names
        for pattern in ("", "*=*/")
        for path in (folder / name).glob(f"{pattern}????-??-??.parquet")
    }
    return sorted(report for report in found if days_of(folder, report))


def write_result(
    folder: Path, report: str, day: dt.date, window: Estimates, days: Estimates | None
) -> None:
    """Write a day's result, its Parquet file last: without it there is no result."""
    target = folder / report
    target.mkdir(parents=True, exist_ok=True)
    top = "../" * (report.count("/") + 1) + INDEX
    together, apart = f"{day}.html", f"{day}{BY_DAY}.html"
    if days is not None:
        rows = f"{day}{BY_DAY}.parquet"
        links = {"All reports": top, "All days together": together, "All rows": rows}
        atomic_write(target / apart, partial(write_html, _linked(days, links)))
        atomic_write(target / f"{day}{BY_DAY}.parquet", partial(write_parquet, days))
    if window.page is not None:
        links = {"All reports": top} | ({} if days is None else {"Day by day": apart})
        links["All rows"] = f"{day}.parquet"
        atomic_write(target / together, partial(write_html, _linked(window, links)))
    atomic_write(target / f"{day}.parquet", partial(write_parquet, window))


def _linked(estimates: Estimates, links: Mapping[str, str]) -> Estimates:
    page = estimates.report()
    return replace(estimates, page=replace(page, links=links, all_rows=links["All rows"]))


def read_result(folder: Path, report: str, day: dt.date) -> Result:
    """Read a result; raises `WatchError` if it isn't one."""
    path = folder / report / f"{day}.parquet"
    document = _document(path)
    if WATCH not in document:
        raise _no_result(path)
    return Result(report, day, document, path)


def read_days(folder: Path, report: str, day: dt.date) -> Result | None:
    """Return a result's days one by one; None: it has none (raises as `read_result`)."""
    path = folder / report / f"{day}{BY_DAY}.parquet"
    return Result(report, day, _document(path), path) if path.exists() else None


def _document(path: Path) -> dict[str, Any]:
    import pyarrow.parquet  # noqa: PLC0415 - takes half a second to import

    with _read_from(path):
        metadata = pyarrow.parquet.read_schema(path).metadata or {}
        return {
            name.decode().removeprefix("hubbub."): json.loads(value)
            for name, value in metadata.items()
            if name.startswith(b"hubbub.")
        }


def _rows(path: Path) -> dict[str, list[Any]]:
    import pyarrow.parquet  # noqa: PLC0415 - as above

    with _read_from(path):
        rows: dict[str, list[Any]] = pyarrow.parquet.read_table(path).to_pydict()
        return rows


@contextlib.contextmanager
def _read_from(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # pyarrow's name no file; JSONDecodeError is one
        raise _no_result(path) from error


def _no_result(path: Path) -> WatchError:
    return WatchError(
        f"{path}: isn't a result. Remove it; the next run makes it again if `catch_up` reaches it"
    )
