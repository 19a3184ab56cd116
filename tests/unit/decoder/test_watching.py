"""The standing report: what decode.toml may hold, what is made of it, and what is news."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner

from factories import make_metric, registry_toml
from hubbub.decoder.cli import main
from hubbub.decoder.watching import news
from hubbub.decoder.watching.news import message_of
from hubbub.decoder.watching.options import load_watch
from hubbub.decoder.watching.results import Result, days_of, read_result
from hubbub.decoder.watching.running import exclusive_lock, last_day, next_time
from hubbub.protocol import EnumType, MetricError, Records, record_width
from hubbub.reporting import Finding, Level
from hubbub.storage import MetricVersion, NewBatch, open_store
from stored_metrics import NOISE, WORDS, reports_of

LAST = dt.date(2024, 11, 12)  # long ago, whatever the clock says
_DAYS = [LAST - dt.timedelta(days=back) for back in reversed(range(6))]
_THEMES = make_metric("theme", metric_type=EnumType(("a", "b", "c")), params=NOISE)


class Folder:
    """A registry, a store of six days whose last two are others, and a decode.toml."""

    def __init__(self, path: Path, text: str = "") -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        (path / "metrics.toml").write_text(registry_toml(_THEMES, WORDS), encoding="utf-8")
        (path / "words.txt").write_text("word 3\nword 4\nword 5\n", encoding="utf-8")
        self.file = path / "decode.toml"
        self.write(text)

    def write(self, text: str) -> None:
        self.file.write_text(
            f'metrics = "metrics.toml"\nstore = "sqlite:///{self.path}/a.db"\n{text}',
            encoding="utf-8",
        )

    def fill(self) -> None:
        asyncio.run(self._fill())

    def fill_like(self, other: Folder) -> None:
        """Have the same reports as another folder, which is quicker than to draw them."""
        shutil.copy(other.path / "a.db", self.path)

    async def _fill(self) -> None:
        async with open_store(f"sqlite:///{self.path}/a.db", create=True) as store:
            await store.declare([_THEMES, WORDS])
            for number, day in enumerate(_DAYS):
                late = number >= 4
                batch = {}
                for metric, value in (
                    (_THEMES, "c" if late else "a"),
                    (WORDS, "word 4" if late else "word 3"),
                ):
                    width = record_width(metric.params.k)
                    records = Records(width, reports_of(metric, value, number, 1_000))
                    batch[MetricVersion(metric.name, 1)] = records
                await store.append([NewBatch(secrets.token_bytes(16), batch)], day)

    def watch(self, until: dt.date = LAST, code: int = 0) -> tuple[str, str]:
        result = CliRunner().invoke(
            main, ["watch", str(self.file), "--once", "--until", f"{until}"]
        )
        assert result.exit_code == code, (result.output, result.exception)
        return result.stdout, result.stderr

    def files(self) -> dict[str, bytes]:
        """Return what is in the folder of results, by name."""
        results = self.path / "results"
        return {
            path.relative_to(results).as_posix(): path.read_bytes()
            for path in sorted(results.rglob("*"))
            if path.is_file() and path.name != ".lock"
        }


_TWO = """days = 2
catch_up = 6

[reports.words]
candidates = "words.txt"
method = "regression"
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Folder:
    """Return a folder in which everything was made, from day to day."""
    folder = Folder(tmp_path_factory.mktemp("watched"), _TWO)
    folder.fill()
    for day in _DAYS[3:-1]:
        folder.watch(day, code=3 if day == _DAYS[4] else 0)
    folder.watch()
    return folder


def test_each_report_and_day_has_one_result(watched):
    for report in ("theme", "words"):
        assert days_of(watched.path / "results", report) == _DAYS
    names = {f"{report}/{day}{way}" for report in ("theme", "words") for day in _DAYS[1:]
             for way in (".parquet", ".html", "-by-day.parquet", "-by-day.html")}  # fmt: skip
    assert names <= watched.files().keys()


def test_existing_results_are_never_made_again(watched):
    before = watched.files()
    assert watched.watch() == ("", "")
    assert watched.files() == before


def test_catching_up_gives_what_daily_runs_gave(watched, tmp_path):
    """Byte for byte, but for the name of the store, which no result has."""
    late = Folder(tmp_path, _TWO)
    late.fill()
    late.watch(code=3)
    first, second = watched.files(), late.files()
    assert first.keys() == second.keys()
    different = [name for name in first if first[name] != second[name]]
    # Counts of a store are the result's source; these stores drew the same reports.
    assert different == []


def test_interrupted_result_is_made_again(watched, tmp_path):
    """What a run left that ended between two files isn't a result yet."""
    half = Folder(tmp_path, f"leave_out = ['theme']\n{_TWO}")
    half.fill_like(watched)
    half.watch(_DAYS[3])
    results = half.path / "results" / "words"
    (results / f"{_DAYS[3]}.parquet").unlink()
    half.watch(_DAYS[3])
    name = f"words/{_DAYS[3]}.parquet"
    assert half.files()[name] == watched.files()[name]


def test_result_says_where_it_comes_from(watched):
    table = pyarrow.parquet.read_table(watched.path / "results" / "theme" / f"{LAST}.parquet")
    provenance = json.loads(table.schema.metadata[b"hubbub.provenance"])
    assert provenance["days"] == f"{_DAYS[-2]} to {LAST}"
    assert provenance["metric"] == "theme"
    assert table.column_names[0] == "category"


def _loud(folder: Path, report: str) -> dict[dt.date, list[tuple[str, str]]]:
    """Return the days with warnings among their news: codes and names."""
    found: dict[dt.date, list[tuple[str, str]]] = {}
    for day in days_of(folder / "results", report):
        for each in read_result(folder / "results", report, day).news:
            value: Any = each.value
            if each.level >= Level.WARNING:
                found.setdefault(day, []).append((each.code, value["name"]))
    return found


def test_news_is_announced_once_on_the_day_it_is_certain(watched):
    """Half of all clients have another word, or theme, from the fifth day on."""
    assert _loud(watched.path, "words") == {
        _DAYS[4]: [(news.NEW, "word 4"), (news.CHANGED, "word 3"), (news.CHANGED, "word 4")]
    }
    assert _loud(watched.path, "theme") == {
        _DAYS[4]: [(news.NEW, "c"), (news.CHANGED, "a"), (news.CHANGED, "c")]
    }


def test_index_shows_the_news(watched):
    folder = watched.path / "results"
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "word 4 is new: " in page
    assert "since 11 November" in page
    for link in ("words/2024-11-12.html", "theme/2024-11-12-by-day.html"):
        assert f'href="{link}"' in page
        assert (folder / link).exists()


def test_a_tile_shows_the_share_now_and_not_the_average_over_a_change(watched, tmp_path):
    """Half have theme "c" on the last two of six days; 0.1 is over 6 of their standard errors."""
    folder = Folder(tmp_path, "leave_out = ['words']\ndays = 6\ncatch_up = 1\n")
    folder.fill_like(watched)
    folder.watch()
    page = (tmp_path / "results" / "index.html").read_text(encoding="utf-8")
    (now,) = re.findall(r'>c</th><td data-head="share now">([0-9.]+)%', page)
    shares = read_result(tmp_path / "results", "theme", LAST).shares()
    assert float(now) > 100 * shares["c"][0] + 10


def test_metric_without_reports_waits(watched, tmp_path):
    """No result is made before the first report; then days with too few have one that says so."""
    folder = Folder(tmp_path, 'catch_up = 2\nleave_out = ["words"]\ndays = 1\n')
    folder.fill_like(watched)
    folder.watch(_DAYS[0] - dt.timedelta(days=3))
    assert days_of(folder.path / "results", "theme") == []
    folder.watch()
    out, _ = folder.watch(LAST + dt.timedelta(days=1), code=3)
    assert "no reports of theme" in out
    page = (folder.path / "results" / "index.html").read_text(encoding="utf-8")
    assert "too few" in page


def test_failed_results_are_reported_and_the_rest_is_made(watched, tmp_path):
    words = '[reports.words]\ncandidates = "none.txt"\n'
    folder = Folder(tmp_path, f"catch_up = 2\n{words}[reports.theme]\ndays = 2\n")
    folder.fill_like(watched)
    _, errors = folder.watch(code=1)
    assert "Error: words 2024-11-11: " in errors
    assert "none.txt" in errors
    assert LAST in days_of(folder.path / "results", "theme")


def test_candidate_that_is_listed_later_is_not_called_new(watched, tmp_path):
    """It was there all the time."""
    folder = Folder(
        tmp_path, f"leave_out = ['theme']\n{_TWO.replace('catch_up = 6', 'catch_up = 1')}"
    )
    (tmp_path / "words.txt").write_text("word 4\nword 5\n", encoding="utf-8")
    folder.fill_like(watched)
    folder.watch(_DAYS[2])
    (tmp_path / "words.txt").write_text("word 3\nword 4\nword 5\n", encoding="utf-8")
    folder.watch(_DAYS[3])
    result = read_result(tmp_path / "results", "words", _DAYS[3])
    assert "word 3" in result.names()
    assert result.news == ()


def test_damaged_rows_of_the_newest_result_are_named_and_all_else_is_shown(watched, tmp_path):
    """What is said of a result stands at the end of its file, and its rows stand before."""
    reports = "[reports.theme]\n[reports.other]\nmetric = 'theme'\n"
    folder = Folder(tmp_path, f"leave_out = ['words']\ndays = 1\ncatch_up = 1\n{reports}")
    folder.fill_like(watched)
    folder.watch(_DAYS[2])
    file = tmp_path / "results" / "theme" / f"{_DAYS[2]}.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + bytes(400) + whole[404:])
    _, errors = folder.watch(_DAYS[2], code=1)
    assert f"{file}: isn't a result. Remove it" in errors
    page = (tmp_path / "results" / "index.html").read_text(encoding="utf-8")
    assert f"other/{_DAYS[2]}" in page
    assert "theme could not be made" in page


def test_two_processes_do_not_work_in_one_folder(tmp_path):
    folder = Folder(tmp_path, _TWO)
    with exclusive_lock(tmp_path / "results"):
        _, errors = folder.watch(code=1)
    assert "another process is making results here" in errors


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("dais = 3", ["decode.toml: unknown key 'dais'", "days"]),
        ("days = 0", ["days = 0: must be an integer between 1 and 366"]),
        ('at = "25:00"', ["at = '25:00': must be a time of day (UTC)"]),
        ('level = "fact"', ["level = 'fact'", "warning"]),
        (
            'webhooks = ["http://example.com/x"]',
            ["webhooks[0]: must be an address that begins with https://"],
        ),
        ("", ["reports.words: is missing: metrics.words needs candidates"]),
        ('leave_out = ["word"]', ["leave_out = 'word': must be one of"]),
        ("[reports.words]\ncandidate = 1", ["reports.words: unknown key 'candidate'"]),
        ('[reports.x]\nmetric = "y"', ["reports.x.metric = 'y': must be one of"]),
        ('[reports.theme]\nsplit = "os"', ["reports.theme.split = 'os': must be one of the dim"]),
        ('[reports."a/b"]\nmetric = "theme"', ["reports.a/b: must be 1 to 64 letters"]),
        ("days = 0\n[reports.theme]\nrows = 0", ["days = 0", "rows = 0"]),
        ("[reports.theme]\nalpha = 'x'", ["reports.theme.alpha = 'x': must be a number"]),
        ("[reports.theme]\nwhere = 'os=mac'", ["reports.theme.where = 'os=mac': must be a table"]),
        ("[reports.theme]\nrows = -5", ["reports.theme.rows = -5: must be an integer"]),
        ("[reports.theme]\ndetected_only = 'no'", ["detected_only = 'no': must be true or"]),
        ("[reports.theme]\nmethod = 'guess'", ["reports.theme.method = 'guess': must be one of"]),
        ("[reports.theme]\nreports_per_client = 0", ["reports_per_client = 0: must be a num"]),
        ("at = '01:00+05:00'", ["at = '01:00+05:00': must be a time of day"]),
        ("output = 's3://b/x'", ["output = 's3://b/x': must be a folder of this machine"]),
        ("leave_out=['words']\n[reports.theme]\nmetric='words'", ["metrics.theme needs a report"]),
    ],
)
def test_mistakes_are_named(tmp_path, text, faults):
    folder = Folder(tmp_path, text)
    with pytest.raises(MetricError) as caught:
        load_watch(folder.file)
    for fault in faults:
        assert fault in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "ftp://a.example/token",
        "https://a.example/to token",
        "https://a.example:token",
        "https://[token",
    ],
)
def test_secret_addresses_are_not_shown(tmp_path, address):
    folder = Folder(tmp_path, f'webhooks = ["{address}"]\n')
    with pytest.raises(MetricError) as caught:
        load_watch(folder.file)
    assert "token" not in str(caught.value)


@pytest.mark.parametrize(
    ("now", "last", "following"),
    [
        ("2026-11-12T00:59:59+00:00", "2026-11-10", "2026-11-12T01:00:00+00:00"),
        ("2026-11-12T01:00:00+00:00", "2026-11-11", "2026-11-13T01:00:00+00:00"),
        ("2026-11-12T02:30:00+02:00", "2026-11-10", "2026-11-12T01:00:00+00:00"),
    ],
)
def test_day_is_due_an_hour_after_its_end(tmp_path, now, last, following):
    watch = load_watch(Folder(tmp_path, _TWO).file)
    moment = dt.datetime.fromisoformat(now)
    assert last_day(watch, moment) == dt.date.fromisoformat(last)
    assert next_time(watch, moment) == dt.datetime.fromisoformat(following)


def test_first_day_says_when_there_will_be_results(watched, tmp_path):
    folder = Folder(tmp_path, "leave_out = ['words']\ncatch_up = 1\n")
    folder.fill_like(watched)
    _, errors = folder.watch(_DAYS[0] - dt.timedelta(days=1))
    assert "no results yet: no report is of a day up to" in errors
    assert "is due at" in errors
    folder.watch(_DAYS[0])
    assert "no results yet" not in folder.watch(_DAYS[0])[1]


def test_change_that_moves_by_a_day_is_the_same():
    def new(day: str, sure: bool, announced: Any) -> list[str]:
        change = {"before": 0.1, "after": 0.2, "day": day, "sure": sure, "text": "10% → 20%"}
        series = [{"kind": "string", "string": "a", "changes": [change]}]
        return [each.text for each in news.newly_changed(series, announced)]

    told = [("a", True, "2026-11-05")]
    assert new("2026-11-05", False, []) == []
    assert new("2026-11-07", True, []) == ["10% → 20%"]
    assert new("2026-11-07", True, told) == []
    assert new("2026-11-12", True, told) == ["10% → 20%"]


def test_question_that_changes_is_not_compared(watched, tmp_path):
    """Another `where` under the same name: its shares are no news of the old one's."""
    folder = Folder(
        tmp_path,
        "leave_out = ['words', 'theme']\ncatch_up = 1\n[reports.a]\nmetric = 'theme'\ndays = 1\n",
    )
    folder.fill_like(watched)
    folder.watch(_DAYS[3])
    text = folder.file.read_text(encoding="utf-8")
    folder.file.write_text(text + "estimand = 'reports'\n", encoding="utf-8")
    folder.watch(_DAYS[4])
    folder.watch(_DAYS[5])
    assert _loud(tmp_path, "a") == {}


@pytest.mark.parametrize("message", ["<!channel> `<https://e.example|log in>` @all"])
def test_strings_of_clients_are_inert_in_messages(message):
    finding = Finding("newly_detected", "", message, None, Level.WARNING)
    document = {"watch": {"news": [finding.as_json()]}}
    text = message_of(Result("r", LAST, document, Path()), Level.WARNING, "")["text"]
    _, line = text.split("\n")
    assert line == "- `&lt;!channel&gt; '&lt;https://e.example|log in&gt;' @all`"


def test_end_of_a_metric_is_news_once(watched, tmp_path):
    folder = Folder(tmp_path, "leave_out = ['words']\ndays = 1\n")
    text = registry_toml(_THEMES._replace(expires=LAST + dt.timedelta(days=28)), WORDS)
    (tmp_path / "metrics.toml").write_text(text, encoding="utf-8")
    folder.fill_like(watched)
    folder.watch(code=3)
    loud = {day: [each.code for each in read_result(tmp_path / "results", "theme", day).news
                  if each.level]
            for day in _DAYS}  # fmt: skip
    assert [day for day, codes in loud.items() if "metric_expires_soon" in codes] == [_DAYS[-3]]
