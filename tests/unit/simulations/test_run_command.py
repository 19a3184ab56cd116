"""The options of `hubbub-simulate run`: what they make, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hubbub.simulations import FolderError, main, start_afresh
from unit.decoder.pages import Page, assert_accessible, assert_self_contained

SMALL = ("--unique", "20", "--reports", "2e4", "--k", "32", "--m", "8", "--seed", "1")


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


def test_a_refused_run_leaves_no_folder(tmp_path):
    done = simulate("--missing", "nan", "--output", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert not list(tmp_path.iterdir())


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


def test_stores_of_an_earlier_simulation_are_removed_and_all_else_stays(tmp_path):
    start_afresh(tmp_path)
    for name in ("hubbub.db", "hubbub.db-wal", "metrics.toml", "notes.txt"):
        (tmp_path / name).touch()
    start_afresh(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["metrics.toml", "notes.txt"]


@pytest.mark.parametrize("name", ["hubbub.db", "metrics.toml", "decode.toml", "collector.toml"])
def test_files_that_no_simulation_made_are_left_alone(tmp_path, name):
    (tmp_path / name).write_text("precious")
    for _ in range(2):
        with pytest.raises(FolderError, match=f"{name}: no simulation made it"):
            start_afresh(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"
