"""Results as files and on a terminal: nothing lost, nothing invented, nothing executed."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from hubbub.collector.poisoning.balance import Balance
from hubbub.collector.poisoning.repeats import Repeats
from hubbub.collector.poisoning.set_bits import SetBits
from hubbub.decoder import Decoding
from hubbub.decoder.output import print_table, printable, to_csv, to_json, write
from hubbub.decoder.scrutiny import Findings
from unit.decoder.decodings import make_decoding

HEADER = (
    "string,count,std_error,count_low,count_high,proportion,prop_std_error,prop_low,prop_high,"
    "p_value,q_value,detected"
)
NASTY = (
    "",
    " ",
    " x ",
    "007",
    "NA",
    "nan",
    "null",
    "1e5",
    "a,b",
    'say "hi"',
    "'",
    ";",
    "\t",
    "a\nb",
    "a\rb",
    "a\r\nb",
    "\n",
    "\r",
    "=1+1",
    "\0",
    "日本語",
    "\U0001f984",
    "e\N{COMBINING ACUTE ACCENT}",
    "\ufeffmark",
    "\u2028",
    "\x85",
    "\x1b[31mred",
)

distinct_strings = st.lists(st.text(), min_size=1, max_size=8, unique=True)


def parsed(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def shown(
    decoding: Decoding,
    *,
    detected_only: bool = False,
    limit: int = 40,
    findings: Findings | None = None,
) -> str:
    """Return what a wide terminal without colours would show."""
    console = Console(width=200, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        print_table(decoding, console, detected_only=detected_only, limit=limit, findings=findings)
    return capture.get()


@pytest.mark.parametrize("render", [to_csv, to_json])
def test_same_decoding_gives_the_same_bytes(render: Callable[[Decoding], str]) -> None:
    assert render(make_decoding(NASTY)) == render(make_decoding(NASTY))


def test_csv_has_exactly_these_columns() -> None:
    assert to_csv(make_decoding(["a"])).split("\n")[0] == HEADER


@given(distinct_strings)
@example(list(NASTY))
def test_csv_gives_every_string_back(strings: list[str]) -> None:
    rows = parsed(to_csv(make_decoding(strings)))
    assert [row["string"] for row in rows] == strings
    assert all(list(row) == HEADER.split(",") for row in rows)


@given(distinct_strings)
@example(list(NASTY))
def test_json_gives_every_string_back(strings: list[str]) -> None:
    document = json.loads(to_json(make_decoding(strings)))
    assert [row["string"] for row in document["rows"]] == strings
    assert all(list(row) == HEADER.split(",") for row in document["rows"])


@given(st.floats(-1, 2), st.integers(1, 10**9))
def test_csv_numbers_keep_nine_digits(share: float, n_reports: int) -> None:
    (row,) = parsed(to_csv(make_decoding(["a"], [share], n_reports=n_reports)))
    expected = {
        "count": share * n_reports,
        "std_error": 0.01 * n_reports,
        "count_low": (share - 0.02) * n_reports,
        "count_high": (share + 0.02) * n_reports,
        "proportion": share,
        "prop_std_error": 0.01,
        "prop_low": share - 0.02,
        "prop_high": share + 0.02,
        "p_value": 1e-9,
        "q_value": 2e-9,
    }
    assert {name: float(row[name]) for name in expected} == pytest.approx(expected, rel=1e-9)
    assert row["detected"] == "true"


def test_json_numbers_equal_csv_numbers() -> None:
    decoding = make_decoding(["a", "b"], [0.25, -0.125], [True, False])
    for fields, row in zip(json.loads(to_json(decoding))["rows"], parsed(to_csv(decoding)),
                           strict=True):  # fmt: skip
        assert fields.pop("string") == row.pop("string")
        assert json.dumps(fields.pop("detected")) == row.pop("detected")
        assert fields == pytest.approx({name: float(cell) for name, cell in row.items()})


def test_what_the_data_cannot_tell_is_empty_in_csv_and_null_in_json() -> None:
    decoding = make_decoding(["a", "b"], [math.nan, 0.5], [False, True], unknown_share=math.nan)
    unknown = ("count", "std_error", "count_low", "count_high", "proportion", "prop_std_error",
               "prop_low", "prop_high")  # fmt: skip
    row, _ = parsed(to_csv(decoding))
    assert {row[name] for name in unknown} == {""}
    document = json.loads(to_json(decoding), parse_constant=pytest.fail)
    assert {document["rows"][0][name] for name in unknown} == {None}
    assert document["summary"]["unknown_share"] is None


def test_json_summary_tells_the_error_rate_and_the_privacy() -> None:
    summary = json.loads(to_json(make_decoding(["a", "b"], detected=[True, False])))["summary"]
    assert summary["reports"] == 1000
    assert summary["candidates"] == 2
    assert summary["detected"] == 1
    assert summary["alpha"] == 0.05
    assert summary["correction"] == "bh"
    assert summary["epsilon_report"] == 4.4
    assert summary["epsilon_permanent"] == 11.8


def test_detected_only_leaves_the_others_out() -> None:
    decoding = make_decoding(["a", "b", "c"], detected=[False, True, False])
    assert [row["string"] for row in parsed(to_csv(decoding, detected_only=True))] == ["b"]
    rows = json.loads(to_json(decoding, detected_only=True))["rows"]
    assert [row["string"] for row in rows] == ["b"]
    assert "a" not in shown(decoding, detected_only=True).split("\n")[4]


def test_detected_only_of_nothing_is_a_header() -> None:
    assert to_csv(make_decoding(["a"], detected=[False]), detected_only=True) == HEADER + "\n"


@pytest.mark.parametrize(("name", "render"), [("r.csv", to_csv), ("r.json", to_json)])
def test_written_file_holds_just_the_text(
    tmp_path: Path, name: str, render: Callable[[Decoding], str]
) -> None:
    decoding = make_decoding(NASTY)
    write(decoding, str(tmp_path / "new" / name))
    assert (tmp_path / "new" / name).read_bytes() == render(decoding).encode()
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"result\.txt': must end in \.csv or \.json"):
        write(make_decoding(["a"]), str(tmp_path / "result.txt"))
    assert not list(tmp_path.iterdir())


def test_failed_write_leaves_no_file_behind(tmp_path: Path) -> None:
    """A folder of that name is in the way."""
    (tmp_path / "result.csv").mkdir()
    with pytest.raises(OSError, match=r"result\.csv"):
        write(make_decoding(["a"]), str(tmp_path / "result.csv"))
    assert [path.name for path in tmp_path.iterdir()] == ["result.csv"]


def test_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """Whoever opened the old result goes on reading the old one: the new is another file."""
    path = tmp_path / "result.csv"
    write(make_decoding(["old"]), str(path))
    with path.open(encoding="utf-8") as reader:
        write(make_decoding(["new"]), str(path))
        assert "old" in reader.read()
    assert "new" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("string", "text"),
    [
        ("plain", "plain"),
        ("日本語 \U0001f984", "日本語 \U0001f984"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\nb\r\tc\0", r"a\nb\r\tc\x00"),
        ("\u202eright to left", r"\u202eright to left"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\x9b31m", r"\x9b31m"),
        ("\U000e0041", r"\U000e0041"),
        ("", '""'),
        (" x ", '" x "'),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
    ],
)
def test_terminal_shows_strings_without_obeying_them(string: str, text: str) -> None:
    assert printable(string).plain == text
    assert text in shown(make_decoding([string]))


@given(distinct_strings)
def test_terminal_gets_no_control_characters(strings: list[str]) -> None:
    assert all(c.isprintable() or c == "\n" for c in shown(make_decoding(strings)))


def test_table_shows_the_detected_first_and_the_largest_of_them_at_the_top() -> None:
    decoding = make_decoding(
        ["absent", "small", "large", "twin"], [0.9, 0.1, 0.4, math.nan], [False, True, True, False]
    )
    text = shown(decoding)
    assert text.index("large") < text.index("small") < text.index("absent") < text.index("twin")


def test_table_says_how_many_rows_it_leaves_out() -> None:
    text = shown(make_decoding([f"string {i}" for i in range(12)]), limit=5)
    assert text.count("string ") - text.count("none of the detected string") == 5
    assert "and 7 more; --output writes them all" in text


def test_summary_names_what_a_reader_must_know() -> None:
    text = shown(make_decoding(["a", "twin"], [0.5, math.nan], [True, False]))
    for part in (
        "1,000",
        "16 (1 without reports)",
        "epsilon of one report         4.4",
        "1 at a false discovery rate of at most 0.05",
        "a share of 3.000% is found with probability 0.9",
        "25.0% ± 3.9% of the reports hold none of the detected strings",
        "1 candidates set the same bits as another one",
    ):
        assert part in text


HONEST = Findings(
    alarm=1e-6,
    bits=128,
    cohorts=64,
    improbable=0,
    plausible=SetBits(15, 90),
    repeats=Repeats(assessed=True, sampled=9000, most=1, plausible=3, suspicious=0),
    balance=Balance(cohort=7, ratio=1.125, dispersion=1.1, clients_must_send=0.5),
    reports_a_client=100,
)


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            {},
            [
                "all reports have 15 to 90, as honest ones would",
                "of 9,000 reports looked at none repeats more often than honest ones might",
                "cohort 7 has 1.12 times the mean, as honest clients' might",
                (
                    "if 1% of these reports were forged, an estimated share could move by at most "
                    "2.5 percentage points"
                ),
            ],
        ),
        (
            {"improbable": 1234},
            ["SUSPICIOUS: 1,234 reports don't have 15 to 90 set bits"],
        ),
        (
            {"repeats": HONEST.repeats._replace(most=57, suspicious=2000)},
            ["SUSPICIOUS: 2,000 of 9,000 reports looked at", "57 times, where at most 3 is"],
        ),
        (
            {"balance": HONEST.balance._replace(clients_must_send=1500.4)},
            ["SUSPICIOUS: cohort 7 has 1.12", "only if some client sent more than 1,500 reports"],
        ),
        (
            {
                "plausible": SetBits(0, 128),
                "repeats": HONEST.repeats._replace(assessed=False),
                "cohorts": 1,
            },
            [
                "not assessable: with so few bits honest reports have any number of them",
                "not assessable: with so few bits or so little noise honest reports repeat too",
                "not assessable: there is only one",
            ],
        ),
    ],
    ids=["honest", "set bits", "repeats", "cohorts", "not assessable"],
)
def test_summary_tells_whether_reports_look_honest(
    change: dict[str, Any], lines: list[str]
) -> None:
    findings = replace(HONEST, **change)
    text = shown(make_decoding(["a"]), findings=findings)
    for line in lines:
        assert line in text
    assert ("SUSPICIOUS" in text) == findings.suspicious


def test_json_without_a_scrutiny_says_so() -> None:
    assert json.loads(to_json(make_decoding(["a"])))["scrutiny"] is None
