"""The options of `hubbub-simulate run`: what they make, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hubbub.simulations import main
from unit.decoder.pages import Page, assert_accessible, assert_self_contained

SMALL = ("--unique", "20", "--reports", "2e4", "--k", "32", "--m", "8", "--seed", "1")


OPEN = ("--type", "open-string")


def simulate(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, ["run", *arguments], input=given)


def result_of(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return document


def made(folder: Path, *arguments: str) -> str:
    """Simulate into a folder; return what is said."""
    done = simulate(*arguments, "--output", str(folder))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """Return what one small run makes."""
    folder: Path = tmp_path_factory.mktemp("small")
    made(folder, *SMALL, "--workers", "1")
    return folder


def test_same_seed_gives_the_same_files(small, tmp_path):
    """Whatever the number of processes, and the order of the options."""
    pairs = [*(SMALL[i : i + 2] for i in range(0, len(SMALL), 2)), ("--workers", "2")]
    options = [word for pair in reversed(pairs) for word in pair]
    made(tmp_path, *options)
    one, other = (sorted(folder.iterdir()) for folder in (small, tmp_path))
    assert [path.name for path in one] == [path.name for path in other]
    assert {"result.json", "report.html", "estimates.png"} <= {path.name for path in one}
    for a, b in zip(one, other, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name


def test_impossible_output_is_an_error_without_a_traceback(tmp_path):
    (tmp_path / "file").touch()
    done = simulate(*SMALL, "--output", str(tmp_path / "file" / "below"))
    assert done.exit_code == 1
    assert "Error:" in done.output
    assert "Not a directory" in done.output


def test_page_needs_no_other_file(small):
    html = (small / "report.html").read_text(encoding="utf-8")
    assert "<svg " in html
    page = Page(html)
    assert_accessible(page)
    assert_self_contained(page)


def test_values_of_a_file_are_the_population(tmp_path):
    done = simulate(
        "--values", "-", "--reports", "5e4", "--f", "0.1", "--p", "0.1", "--q", "0.9",
        "--missing", "0", "--candidates-extra", "5", "--seed", "2", "--k", "32",
        "--output", str(tmp_path),
        given="<b>[red]x</b>\n" * 6 + "\x1b[2Jy\n" * 4 + "$\\frac日本\n" * 4,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    result = result_of(tmp_path)
    assert (result["candidates"], result["score"]["true_positives"]) == (8, 3)
    assert "<b>[red]x</b>" in done.output
    assert r"\x1b[2Jy" in done.output
    assert "&lt;b&gt;[red]x&lt;/b&gt;" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_days_multiply_the_reports_and_forged_ones_come_on_top(tmp_path):
    made(
        tmp_path, *SMALL, "--days", "3", "--change", "0.1", "--candidates-extra", "5",
        "--forged", "0.1",
    )  # fmt: skip
    result = result_of(tmp_path)
    assert (result["reports"], result["forged"]) == (60_000 + 6_667, 6_667)
    assert result["target"]["truth"] == 0
    assert result["target"]["estimate"] > 0.1


@pytest.mark.long
def test_open_strings_are_found_without_a_list_and_planted_ones_too(tmp_path):
    """Two names of 45% each, at 30,000 reports; a tenth on top is forged for a third."""
    done = simulate(
        *OPEN, "--values", "-", "--reports", "3e4", "--steps", "2,4", "--k", "64", "--m", "16",
        "--epsilon", "4", "--forged", "0.1", "--target", "Rose", "--seed", "1", "--output",
        str(tmp_path),
        given="Mary\n" * 45 + "James\n" * 45 + "Zoe\n" * 10,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "no candidates" in done.output
    result = result_of(tmp_path)
    assert result["candidates"] == 0
    assert result["options"]["steps"] == "2,4"
    assert result["params"]["m"] == 48
    assert (result["params"]["f"], result["params"]["q"]) == (0, 0.5)
    assert result["score"]["true_positives"] >= 2
    target = result["target"]
    assert (target["string"], target["truth"], target["detected"]) == ("Rose", 0, True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--missing", "nan"), "--missing nan: must be between 0 and 1"),
        (("--change", "nan", "--days", "2"), "--change nan: must be between 0 and 1"),
        (("--target", "x"), "--target: needs --forged"),
        (("--forged", "0.1", "--target", "x"), "'x' isn't among the candidates"),
        ((*OPEN, "--steps", "4,x"), "'4,x': must be lengths in bytes"),
        ((*OPEN, "--m", "40000"), "options.m = 40000: must be an integer between 1 and 21845"),
        ((*OPEN, "--epsilon", "4", "--p", "0.1"), "can't go with --f, --p or --q"),
        (("--epsilon", "4", "--days", "2"), "of one report per client for life"),
        ((*OPEN, "--forged", "0.1"), "there are no candidates; add --target"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, reason, tmp_path):
    done = simulate(*arguments, "--output", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert reason in " ".join(done.output.split())
    assert not (tmp_path / "none").exists()


def test_results_are_not_put_into_a_mistyped_folder(tmp_path, monkeypatch):
    """All but the folder itself must exist; or it is in `out`, as it is by default."""
    monkeypatch.chdir(tmp_path)
    done = simulate(*SMALL, "--output", "nosuchfolder/run1")
    assert done.exit_code == 1
    assert "nosuchfolder: no such folder" in done.output
    assert not list(tmp_path.iterdir())
    assert simulate(*SMALL, "--output", "out/run1").exit_code == 0
    assert (tmp_path / "out" / "run1" / "report.html").exists()


ENUM = ("--type", "enum", "--reports", "1000", "--seed", "1")
ONCE = ("--mode", "once", "--epsilon", "2")


@pytest.mark.parametrize("response", ["subset", "unary"])
def test_categories_are_asked_once_a_period(tmp_path, response):
    given = ("--response", response, "--period-days", "7", "--days", "21")
    said = made(tmp_path, *ENUM, *ONCE, *given)
    found = result_of(tmp_path)
    assert (found["reports"], found["mode"]) == (3_000, "once")
    assert 0 <= found["score"]["interval_coverage"] <= 1
    assert "size" in found if response == "subset" else "size" not in found
    assert "3 of each client, one in 7 days" in " ".join(said.split())


def test_strings_are_asked_once_in_each_period(tmp_path):
    made(tmp_path, *SMALL, *ONCE, "--days", "60")
    found = result_of(tmp_path)
    assert found["reports"] == 40_000
    assert (found["options"]["period_days"], found["params"]["f"]) == (30, 0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--mode", "once"), "give --epsilon or --f 0"),
        ((*ONCE, "--days", "31"), "must be whole periods of 30 days"),
        (("--period-days", "7"), "only --mode once has periods"),
        (("--response", "subset"), "--response: can't go with --type string"),
        (("--type", "enum", "--response", "subset"), "needs --epsilon"),
        (("--type", "enum", "--missing", "0.5"), "--missing: can't go with --type enum"),
        (("--type", "enum", "--unique", "1"), "must be a list of 2 to 4096 texts"),
        (("--type", "enum", "--forged", "0.1"), "--forged: can't go with --type enum"),
    ],
)
def test_periods_and_categories_that_make_no_sense_are_refused(tmp_path, options, expected):
    done = simulate(*options, "--output", str(tmp_path))
    assert done.exit_code == 2
    assert expected in " ".join(done.output.split())
