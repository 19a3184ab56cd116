"""The demonstration of the standing report, from reports to the page, on few days."""

import datetime as dt
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.decoder.cli import main
from hubbub.decoder.watching.news import CHANGED
from hubbub.decoder.watching.results import days_of, read_result
from hubbub.reporting import Level
from hubbub.simulations import BROKEN, run_watched_release, watched

_LAST = dt.date(2024, 11, 4)


@pytest.mark.long
def test_release_that_breaks_one_platform_is_news_of_that_platform_alone(
    tmp_path, capfd, monkeypatch
):
    """Four days with the release on the third and a third of the pages; seeded, always the same."""
    monkeypatch.setattr(watched, "_HOMEPAGES", 40)
    progress = lambda _label: nullcontext(lambda _done, _total: None)  # noqa: E731
    run_watched_release(tmp_path, 40_000, _LAST, 1, progress, days=4)
    printed = capfd.readouterr().out
    assert "true rose from 2024-11-03" in printed
    results = tmp_path / "results"
    assert "crashed/platform=mac" in (results / "index.html").read_text(encoding="utf-8")
    broken = set()
    for report in (*results.glob("crashed/*"), results / "homepage"):
        name = report.relative_to(results).as_posix()
        assert len(days_of(results, name)) == 4
        for day in days_of(results, name):
            told = read_result(results, name, day).news
            if any(each.code == CHANGED and each.level > Level.FACT for each in told):
                broken.add(name)
    assert f"crashed/platform={BROKEN}" in broken
    assert {name for name in broken if name.startswith("crashed")} == {f"crashed/platform={BROKEN}"}
    _then_all_is_silent(tmp_path)


def _then_all_is_silent(folder: Path) -> None:
    """Forty days later each slice has one result more, which says that nothing was reported."""
    until = _LAST + dt.timedelta(days=40)
    done = CliRunner().invoke(
        main, ["watch", f"{folder}/decode.toml", "--once", "--until", f"{until}"]
    )
    assert done.exit_code == 3, done.output
    for platform in ("linux", "mac", "windows"):
        report = f"crashed/platform={platform}"
        days = days_of(folder / "results", report)
        assert len(days) == 5
        news = read_result(folder / "results", report, days[-1]).news
        assert [each.code for each in news] == ["undecodable"]
