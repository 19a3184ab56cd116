"""All commands on a store take it from where `serve` does, and say which one it was."""

import asyncio
import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from factories import make_metric, registry_toml
from hubbub.collector import delete, export, import_, maintain
from hubbub.storage import open_store
from unit.collector.batches import HOMEPAGE, make_new_batch

_LOCAL = 7
_NAMED = 4

Name = Callable[[str], list[str]]


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path, monkeypatch):
    for name in os.environ:
        if name.upper().startswith("HUBBUB_COLLECTOR_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    _fill("sqlite:///hubbub.db", _LOCAL)
    (tmp_path / "metrics.toml").write_text(registry_toml(), encoding="utf-8")


@pytest.fixture
def url(tmp_path) -> str:
    (tmp_path / "far").mkdir()
    found = f"sqlite:///{tmp_path / 'far' / 'reports.db'}"
    _fill(found, _NAMED)
    return found


@pytest.fixture(params=["flag", "environment", "file", "file of the environment"])
def name(request, monkeypatch) -> Name:
    """Return what names a store: flags, after the environment and the file have been changed."""

    def name_it(url: str) -> list[str]:
        Path("collector.toml").write_text(f"port = 1\nstore = '{url}'\n", encoding="utf-8")
        match request.param:
            case "flag":
                monkeypatch.setenv("HUBBUB_COLLECTOR_STORE", "sqlite:///hubbub.db")
                return ["--store", url]
            case "environment":
                monkeypatch.setenv("HUBBUB_COLLECTOR_STORE", url)
                return []
            case "file":
                return ["--config", "collector.toml"]
            case _:
                monkeypatch.setenv("HUBBUB_COLLECTOR_CONFIG", "collector.toml")
                return []

    return name_it


def test_export_is_of_the_store_that_is_named(url, name):
    said = _run(export, "--to", "out", *name(url))
    assert said.splitlines()[-1] == f"exported {_NAMED} reports in 1 file from {url} to out"


def test_export_without_a_name_says_that_it_is_of_the_local_file():
    said = _run(export, "--to", "out")
    assert f"exported {_LOCAL} reports in 1 file from sqlite:///hubbub.db to out" in said


def test_import_is_into_the_store_that_is_named(url, name):
    _run(export, "--to", "out")
    said = _run(import_, "out", "--metrics", "metrics.toml", *name(url))
    assert said.splitlines()[-1] == f"imported {_LOCAL} reports into {url}"
    assert (_count(url), _count("sqlite:///hubbub.db")) == (_NAMED + _LOCAL, _LOCAL)


def test_deletion_is_from_the_store_that_is_named(url, name):
    asked = CliRunner().invoke(delete, ["homepage", *name(url)], input="y\n")
    assert f"Delete {_NAMED} reports of homepage from {url} for good?" in asked.output
    assert (_count(url), _count("sqlite:///hubbub.db")) == (0, _LOCAL)


def test_maintenance_is_of_the_store_that_is_named(url, name):
    _fill(url, 1)
    assert _run(maintain, *name(url)).startswith("merged 2 segments")


def test_maintenance_forgets_after_the_days_that_are_configured(url):
    days = "deduplication_days = 40\nretention_days = 50\n"
    Path("collector.toml").write_text(f"store = '{url}'\n{days}", encoding="utf-8")
    _fill(url, 1, days_ago=30)
    nothing = "merged 0 segments, forgot the batch ids of 0 days, deleted 0 old reports\n"
    assert _run(maintain, "--config", "collector.toml") == nothing
    said = _run(maintain, "--config", "collector.toml", "--retention-days", "20")
    assert said == "merged 0 segments, forgot the batch ids of 0 days, deleted 1 old report\n"


@pytest.mark.parametrize("command", [export, import_, maintain, delete])
def test_misspelt_setting_is_told_and_nothing_is_done(command, monkeypatch):
    monkeypatch.setenv("HUBBUB_COLLECTOR_STROE", "sqlite:///elsewhere.db")
    arguments = {
        export: ["--to", "out"],
        import_: ["metrics.toml", "--metrics", "metrics.toml"],
        delete: ["homepage", "--yes"],
    }
    said = CliRunner().invoke(command, arguments.get(command, []))
    assert (said.exit_code, said.output) == (
        2,
        "Error: HUBBUB_COLLECTOR_STROE: unknown setting\n",
    )
    assert _count("sqlite:///hubbub.db") == _LOCAL


def test_password_in_an_address_is_not_repeated(monkeypatch):
    monkeypatch.setenv("HUBBUB_COLLECTOR_STORE", "postgresql://ford:prefect@localhost:1/hubbub")
    for command in (maintain, delete):
        said = CliRunner().invoke(command, ["homepage"] if command is delete else [])
        assert said.exit_code == 1
        assert "postgresql://ford:***@localhost:1/hubbub" in said.output


def _run(command: click.Command, *arguments: str) -> str:
    said: Result = CliRunner().invoke(command, arguments)
    assert said.exit_code == 0, said.output
    return said.output


def _fill(url: str, reports: int, days_ago: int = 0) -> None:
    day = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=days_ago)

    async def run() -> None:
        async with open_store(url, create=True) as store:
            await store.declare([make_metric()])
            await store.append([make_new_batch(range(reports))], day)

    asyncio.run(run())


def _count(url: str) -> int:
    async def run() -> int:
        async with open_store(url, create=False) as store:
            return await store.count(HOMEPAGE)

    return asyncio.run(run())


def test_an_sqlite_address_with_two_slashes_is_explained():
    result = CliRunner().invoke(maintain, ["--store", "sqlite://hubbub.db"])
    assert result.exit_code == 1
    assert "has two slashes; must be sqlite:///hubbub.db, with three" in result.stderr


def test_export_of_days_in_the_wrong_order_is_refused():
    days = ["--since", "2026-03-02", "--until", "2026-03-01"]
    result = CliRunner().invoke(export, ["--to", "out", *days])
    assert result.exit_code == 2
    assert "--since: 2026-03-02 is after --until 2026-03-01" in result.stderr
    assert not Path("out").exists()
