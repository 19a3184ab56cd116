"""Results that were kept -> one page of tiles, and feeds of what is new.

Pure functions of the results: whatever is lost of these files, the next run makes again.
"""

from __future__ import annotations

import datetime as dt
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from hubbub.decoder.watching.news import CHANGED
from hubbub.decoder.watching.results import BY_DAY, INDEX, Result
from hubbub.reporting.blocks import Page, Section, Table, headings
from hubbub.reporting.charts import Chart, Labels, TimeSeries
from hubbub.reporting.estimates import Estimates, Finding, Level
from hubbub.reporting.formats.data_files import json_text
from hubbub.reporting.text import shortened, visible

RSS: Final = "feed.xml"
JSON_FEED: Final = "feed.json"
_ROWS: Final = 5
_NEWS: Final = 6
"""Of a tile; the report has them all."""
_WIDTH: Final = 36
_EARLIER: Final = 7
_ITEMS: Final = 100
"""Of a feed: months of a quiet application, and some days of a loud one."""

Days = tuple[Mapping[str, Any], Any] | None
"""Columns and document of the days one by one, as `results.read_days` returns them."""


def index_page(
    application: str,
    results: Sequence[tuple[Result, Days, Sequence[dt.date]]],
    faults: Mapping[str, str],
) -> Estimates:
    """Return the page of all reports: what is new first, then by name.

    Parameters
    ----------
    application : str
    results : sequence of (Result, Days, sequence of datetime.date)
        The newest result of each report, its days, and the days that have a result.
    faults : mapping of str to str
        Reports that couldn't be made, and why.
    """
    order = sorted(results, key=lambda each: (-_level(each[0]), each[0].report))
    loud = sum(_level(result) > Level.FACT for result, _, _ in order)
    last = max((result.day for result, _, _ in order), default=None)
    said = (
        "Nothing was estimated so far."
        if last is None
        else f"{len(order)} reports up to {last}; {loud or 'none'} with something new to look at."
    )
    tiles = tuple(_tile(number, *each) for number, each in enumerate(order))
    feeds = {"RSS": RSS, "JSON feed": JSON_FEED}
    warnings = [f"{name} could not be made: {why}" for name, why in faults.items()]
    title = f"What {visible(application)} sees"
    return Estimates(page=Page(title, said, tiles, warnings, feeds, tiles=True))


def _level(result: Result) -> Level:
    return max((each.level for each in result.news), default=Level.FACT)


def _tile(number: int, result: Result, days: Days, kept: Sequence[dt.date]) -> Section:
    """Return what a person sees first of a report."""
    news, watch = result.news, result.watch
    loud = [_sentence(each) for each in news if each.level > Level.FACT]
    quiet = [_sentence(each) for each in news if each.level is Level.FACT]
    if more := len(loud) + len(quiet) - _NEWS:
        quiet = [*quiet[: max(_NEWS - len(loud), 0)], *([f"And {more} more."] if more > 0 else [])]
    left = (dt.date.fromisoformat(watch["expires"]) - result.day).days
    reports = next((each.value for each in result.findings if each.code == "reports"), None)
    facts = {
        "days": f"{watch['days']}, up to {result.day}",
        "reports": f"{reports:,}" if isinstance(reports, int) else "too few",
        "asked until": f"{watch['expires']}, {left} days" if left >= 0 else "not any more",
        "epsilon": f"{_epsilon(watch['epsilon_report'])} a report, "
        f"{_epsilon(watch['epsilon_answer'])} an answer",
    }
    links = {"report": f"{result.report}/{result.day}.html"}
    if days is not None:
        links["day by day"] = f"{result.report}/{result.day}{BY_DAY}.html"
    links["Parquet"] = f"{result.report}/{result.day}.parquet"
    links |= {f"{day}": f"{result.report}/{day}.html" for day in kept[-1 - _EARLIER : -1][::-1]}
    chart = None if days is None else _course(number, days[0], _followed(news))
    table = _largest(result)
    return Section(
        result.report,
        tuple(quiet) or (() if loud else ("Nothing new.",)),
        facts,
        () if chart is None else (chart,),
        () if table is None else (table,),
        tuple(loud[:_NEWS]),
        links,
    )


def _sentence(finding: Finding) -> str:
    return f"{finding.label}: {finding.shown}." if finding.label else f"{finding.shown}."


def _epsilon(value: float | None) -> str:
    return "not bounded" if value is None else f"{value:.3g}"


def _followed(news: Sequence[Finding]) -> str | None:
    """Return whose course is shown: what changed most surely; None: what is largest."""
    changed = [each for each in news if each.code == CHANGED]
    if not changed:
        return None
    first: Any = max(changed, key=lambda each: each.level).value
    return str(first["name"])


def _course(number: int, rows: Mapping[str, Any], name: str | None) -> Chart | None:
    """Return the course of one series."""
    key = next(each for each in ("string", "category", "statistic") if each in rows)
    kinds = rows.get("kind", [key] * len(rows[key]))
    names: list[str] = [own or kind for own, kind in zip(rows[key], kinds, strict=True)]
    is_share = "proportion" in rows
    columns = ("proportion", "prop_low", "prop_high") if is_share else ("estimate", "low", "high")
    share, low, high = (
        np.array(rows[column], dtype=np.float64) * (100 if is_share else 1) for column in columns
    )
    if name is None or name not in names:
        means = {
            each: float(np.nansum(share[[own == each for own in names]]))
            for each, kind in dict(zip(names, kinds, strict=True)).items()
            if kind != "unknown"
        }
        if not means:
            return None
        name = max(means, key=lambda each: means[each])
    own = np.array([each == name for each in names])
    days = [day for day, there in zip(rows["day"], own, strict=True) if there]
    changes = [day for day, there in enumerate(np.array(rows["changed"])[own].tolist()) if there]
    unit, word = ("%", "share") if is_share else ("", "estimate")
    form = "{:.3g}" + unit

    def cells(*values: float) -> list[str]:
        return ["" if np.isnan(value) else form.format(value) for value in values]

    course = share[own], low[own], high[own]
    said = f", another from {', '.join(days[day] for day in changes)} on" if changes else ""
    title = f"{shortened(visible(name), _WIDTH)}, day by day"
    return TimeSeries(
        Labels(
            f"tile-{number}", title, f"The {word} from {days[0]} to {days[-1]}{said}.", "", word
        ),
        tuple(days),
        *course,
        np.full(len(days), np.nan),
        tuple(changes),
        ("day", word, "interval from", "to"),
        tuple((day, *cells(*each)) for day, *each in zip(days, *course, strict=True)),
        unit,
    )


def _largest(result: Result) -> Table | None:
    """Return the largest rows of what was detected; of a number all that was estimated."""
    rows = result.rows
    if not rows:
        return None
    names = [shortened(visible(name), _WIDTH) for name in result.names()]
    if "proportion" not in rows:
        numbers = zip(names, rows["estimate"], rows["low"], rows["high"], strict=True)
        cells = [(name, f"{x:.4g}", f"{low:.4g} … {high:.4g}") for name, x, low, high in numbers]
        return Table("Estimates", headings("statistic", "estimate", "95% interval"), tuple(cells))
    places = [place for place, found in enumerate(rows["detected"]) if found]
    places.sort(key=lambda place: -rows["proportion"][place])
    shares = [
        (
            names[place],
            f"{rows['proportion'][place]:.2%}",
            f"{rows['prop_low'][place]:.2%} … {rows['prop_high'][place]:.2%}",
        )
        for place in places[:_ROWS]
    ]
    left = len(places) - len(shares)
    heads = headings("detected", "share", "95% interval")
    return Table(f"{len(places):,} detected", heads, tuple(shares), f"{left:,}" if left else "")


def rss_feed(application: str, url: str, results: Iterable[Result]) -> bytes:
    """Return what is new as RSS 2.0, the newest first.

    Parameters
    ----------
    application : str
    url : str
        Where people reach the folder; empty: links are relative.
    results : iterable of Result
    """
    rss = ET.Element("rss", version="2.0")
    channel = ET.SubElement(rss, "channel")
    title = f"What {visible(application)} sees"
    said = "What reports newly say."
    for name, text in (("title", title), ("link", f"{url}{INDEX}"), ("description", said)):
        ET.SubElement(channel, name).text = text
    for item in _items(url, results):
        element = ET.SubElement(channel, "item")
        for name, text in (
            ("title", item["title"]),
            ("link", item["url"]),
            ("description", item["content_text"]),
            ("pubDate", format_datetime(dt.datetime.fromisoformat(item["date_published"]))),
        ):
            ET.SubElement(element, name).text = text
        ET.SubElement(element, "guid", isPermaLink="false").text = item["id"]
    ET.indent(rss, " ")
    data: bytes = ET.tostring(rss, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def json_feed(application: str, url: str, results: Iterable[Result]) -> bytes:
    """Return the same as a JSON Feed 1.1, with each finding as programs want it."""
    document = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": f"What {visible(application)} sees",
        "home_page_url": f"{url}{INDEX}",
        "feed_url": f"{url}{JSON_FEED}",
        "items": _items(url, results),
    }
    return json_text(document, indent=1).encode() + b"\n"


def _items(url: str, results: Iterable[Result]) -> list[dict[str, Any]]:
    found = []
    for result in sorted(results, key=lambda each: (each.day, each.report), reverse=True):
        time = dt.datetime.combine(result.day + dt.timedelta(days=1), dt.time(), dt.UTC)
        counts: dict[str, int] = {}
        for each in result.news:
            counts[each.code] = counts.get(each.code, 0) + 1
            # By its place among those of a kind, for a value may be a string of any length.
            found.append(
                {
                    "id": f"{result.report}/{result.day}/{each.code}/{counts[each.code]}",
                    "url": url + quote(f"{result.report}/{result.day}.html"),
                    "title": f"{result.report}: {_sentence(each)}",
                    "content_text": _sentence(each),
                    "date_published": time.isoformat(),
                    "tags": [each.level.name.lower(), each.code],
                    "_hubbub": json.loads(json_text(each.as_json())),
                }
            )
    return found[:_ITEMS]
