"""Results as files and on a terminal: nothing lost, nothing invented, nothing executed."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from markupsafe import escape

from hubbub.decoder import Decoding
from hubbub.inference import AnomalyReport, CollisionGroups, candidates as files, pack_strings
from hubbub.protocol import SetBits
from hubbub.reporting import columns, csv_cell, shortened, strings_estimates, visible, write_csv
from unit.decoder import rendered
from unit.decoder.decodings import make_anomalies, make_decoding
from unit.decoder.rendered import csv_of, html_of, json_of

HEADER = (
    "string,count,std_error,count_low,count_high,proportion,prop_std_error,prop_low,prop_high,refit,"
    "p_value,q_value,detected,group"
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


def to_csv(decoding: Decoding, *, detected_only: bool = False) -> str:
    return csv_of(strings_estimates(decoding, detected_only=detected_only))


def to_json(decoding: Decoding, *, detected_only: bool = False) -> str:
    return json_of(strings_estimates(decoding, detected_only=detected_only))


def shown(
    decoding: Decoding,
    *,
    detected_only: bool = False,
    limit: int = 40,
    anomalies: AnomalyReport | None = None,
) -> str:
    """Return what a wide terminal without colours would show."""
    return rendered.shown(strings_estimates(decoding, anomalies, None, detected_only, limit))


@given(distinct_strings)
@example(list(NASTY))
def test_csv_gives_every_string_back(strings):
    rows = parsed(to_csv(make_decoding(strings)))
    assert [row["string"] for row in rows] == strings
    assert all(list(row) == HEADER.split(",") for row in rows)


@given(distinct_strings)
@example(list(NASTY))
def test_json_gives_every_string_back(strings):
    document = json.loads(to_json(make_decoding(strings)))
    assert [row["string"] for row in document["rows"]] == strings
    assert all(list(row) == HEADER.split(",") for row in document["rows"])


@given(st.text())
@example("a\r")
def test_csv_cells_are_quoted_as_the_standard_library_would(string):
    # The writer quotes a CR or LF in a cell only if its own line end has it.
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([string, "x"])
    assert line.getvalue() == f"{csv_cell(string)},x\r\n"


@given(st.floats(-1, 2), st.integers(1, 10**9))
def test_csv_numbers_keep_nine_digits(share, n_reports):
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


def test_undetermined_figures_are_empty_in_csv_and_null_in_json():
    decoding = make_decoding(["a", "b"], [math.nan, 0.5], [False, True], unknown_share=math.nan)
    unknown = ("count", "std_error", "count_low", "count_high", "proportion", "prop_std_error",
               "prop_low", "prop_high")  # fmt: skip
    row, _ = parsed(to_csv(decoding))
    assert {row[name] for name in unknown} == {""}
    document = json.loads(to_json(decoding), parse_constant=pytest.fail)
    assert {document["rows"][0][name] for name in unknown} == {None}
    assert document["summary"]["unknown_share"] is None


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
def test_terminal_shows_strings_without_obeying_them(string, text):
    assert visible(string) == text
    assert text in shown(make_decoding([string]))


@given(distinct_strings)
def test_terminal_gets_no_control_characters(strings):
    assert all(c.isprintable() or c == "\n" for c in shown(make_decoding(strings)))


def test_table_shows_the_detected_first_and_the_largest_of_them_at_the_top():
    decoding = make_decoding(
        ["absent", "small", "large", "twin"], [0.9, 0.1, 0.4, math.nan], [False, True, True, False]
    )
    text = shown(decoding)
    assert text.index("large") < text.index("small") < text.index("absent") < text.index("twin")


def uncertain() -> Decoding:
    """Return three detected strings, of which the second has an interval that reaches 0."""
    decoding = make_decoding(["sure", "unsure", "absent"], [0.4, 0.01, 0.0], [True, True, False])
    return replace(decoding, low=np.array([0.38, 0.0, -0.02]))


def test_an_interval_that_reaches_zero_is_put_in_words():
    text = shown(uncertain())
    lines = {line.split()[1]: line for line in text.splitlines() if line.startswith("│")}
    assert "present, frequency uncertain" in lines["unsure"]
    assert "uncertain" not in lines["sure"] + lines["absent"]
    html = html_of(strings_estimates(uncertain()))
    assert html.count("present, frequency uncertain") == 1


@pytest.mark.parametrize(
    ("text", "most", "short"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abc…fg"),
        ("日本語日本語", 7, "日…語"),
        ("e\u0301" * 10, 5, "e\u0301" * 2 + "…" + "e\u0301" * 2),
        ("e\u0301" * 5, 5, "e\u0301" * 5),
    ],
)
def test_long_texts_are_shortened_in_the_middle(text, most, short):
    assert shortened(text, most) == short


@given(st.text(), st.integers(1, 40))
def test_shortened_texts_fit_whatever_they_are_made_of(text, most):
    short = shortened(text, most)
    assert columns(short) <= most
    assert short == text or (columns(text) > most and len(short) <= 5 * most)


def test_screens_shorten_long_strings_and_files_dont():
    long = "https://example.com/" + "a" * 500 + "/end?<&>"
    decoding = make_decoding([long, "short"])
    text = shown(decoding)
    assert long not in text
    row = next(line for line in text.splitlines() if "https://" in line)
    assert "…" in row
    assert "/end?<&>" in row
    assert len(row) <= 200
    html = html_of(strings_estimates(decoding))
    assert f'title="{escape(long)}"' in html
    assert long in to_csv(decoding)
    assert long in to_json(decoding)


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "＝1", "=1,2"])
def test_formulas_are_inert_in_csv_if_that_is_wanted(start):
    decoding = make_decoding([start, "plain", "a=b"], [-0.1, 0.2, 0.3])
    file = io.BytesIO()
    write_csv(strings_estimates(decoding), file, spreadsheet_safe=True)
    text = file.getvalue().decode()
    rows = parsed(text)
    assert [row["string"] for row in rows] == ["'" + start, "plain", "a=b"]
    assert rows[0]["proportion"] == "-0.1"
    assert parsed(to_csv(decoding))[0]["string"] == start


def test_table_states_how_many_rows_it_leaves_out():
    text = shown(make_decoding([f"string {i}" for i in range(12)]), limit=5)
    assert text.count("string ") - text.count("none of the detected string") == 5
    assert "and 7 more; --output writes them all" in text


HONEST = make_anomalies()


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            {},
            [
                "all reports have 15 to 90, consistent with honest clients",
                "of 9,000 reports checked none repeats suspiciously often",
                "cohort 7 has 1.12 times the mean, consistent with honest clients",
                (
                    "if 1% of these reports were forged, an estimated share could move by at most "
                    "2.5 percentage points"
                ),
            ],
        ),
        (
            {"improbable": 1234},
            ["SUSPICIOUS: 1,234 reports without 15 to 90 set bits"],
        ),
        (
            {"repeats": HONEST.repeats._replace(most=57, suspicious=2000)},
            ["SUSPICIOUS: 2,000 of 9,000 reports checked", "57 times, where at most 3 are"],
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
                "can't be checked: with so few bits, honest reports may set any number of them",
                "can't be checked: with so few bits or so little noise, honest reports repeat too",
                "can't be checked: there is only one",
            ],
        ),
    ],
    ids=["honest", "set bits", "repeats", "cohorts", "can't be checked"],
)
def test_summary_states_whether_reports_look_honest(change, lines):
    anomalies = replace(HONEST, **change)
    text = shown(make_decoding(["a"]), anomalies=anomalies)
    for line in lines:
        assert line in text
    assert ("SUSPICIOUS" in text) == anomalies.suspicious


def test_indistinguishable_candidates_are_rows_of_one_group_and_one_line_for_people():
    same = CollisionGroups(np.array([2, 3]), np.array([0, 0]))
    decoding = make_decoding(["a", "b", "c", "d"], share=[0.3, 0.1, 0.3, 0.3], same_bits=same)
    lines = csv_of(strings_estimates(decoding)).splitlines()
    assert [line.rpartition(",")[2] for line in lines] == ["group", "a", "", "a", "a"]
    shown = rendered.shown(strings_estimates(decoding))
    assert "a (or c, d)" in shown
    assert shown.count("30.00%") == 1


_STRINGS = [
    "",
    "007",
    "NA",
    " x ",
    "a,b",
    'say "no"',
    "two\nlines",
    "\0",
    "\r",
    "日本",
    "\U0001f984",
]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_strings_come_back_as_they_were(strings):
    table = pack_strings(strings)
    assert len(table) == len(strings)
    assert list(table) == strings
    assert [table[i] for i in range(len(table))] == strings
    assert [table.encoded(i).decode() for i in range(len(table))] == strings


def test_table_is_indexed_and_sliced_like_a_list():
    table = pack_strings(_STRINGS)
    assert table[-1] == _STRINGS[-1]
    assert table[2:9:3] == _STRINGS[2:9:3]
    assert table[::-1] == _STRINGS[::-1]
    assert table.index("NA") == 2
    assert "n/a" not in table
    with pytest.raises(IndexError):
        table[len(_STRINGS)]


@given(
    st.lists(st.text("ab", max_size=3), min_size=1, max_size=9),
    st.data(),
    st.sampled_from([1, 4, 2**20]),
)
def test_rows_are_compared_by_their_strings(strings, data, piece):
    row = st.integers(0, len(strings) - 1)
    pairs = data.draw(st.lists(st.tuples(row, row)))
    rows, others = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_COMPARED_BYTES", piece)
        same = pack_strings(strings).equal(rows, others)
    assert same.tolist() == [strings[row] == strings[other] for row, other in pairs]


def test_marked_rows_are_kept_in_order():
    kept = np.array([len(string) != 2 for string in _STRINGS])
    assert list(pack_strings(_STRINGS).only(kept)) == [
        string for string in _STRINGS if len(string) != 2
    ]
