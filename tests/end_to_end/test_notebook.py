"""Decoding from Python: as the command does, and in a notebook that runs in a kernel."""

import asyncio
import io
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from hubbub.decoder import Estimates, decode_metric
from hubbub.decoder.cli import main
from hubbub.inference import CandidateError, UndecodableError
from hubbub.protocol import OptionError
from hubbub.reporting import write_csv
from sample_store import PAGES, fill

SOURCE = Path(__file__).parents[2] / "docs" / "examples"
CANDIDATES = [*PAGES, *(f"nowhere {i}" for i in range(16))]


def read(folder: Path) -> Any:
    import nbformat  # a second, which the collection of tests need not take

    return nbformat.reads((folder / "decode.ipynb").read_text(encoding="utf-8"), as_version=4)


@pytest.fixture(scope="module")
def executed(tmp_path_factory) -> Any:
    """The notebook after its cells ran in a copy of its folder; raises if one of them fails."""
    from nbclient import NotebookClient

    folder = tmp_path_factory.mktemp("notebook") / "examples"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    notebook = read(folder)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=120, resources=resources).execute()
    return notebook


def shown(notebook: Any, code: str) -> dict[str, str]:
    """Return what is displayed below the cell that ends in this code, by media type."""
    cell = next(each for each in notebook.cells if each.source.endswith(code))
    assert len(cell.outputs) == 1, cell.outputs
    return dict(cell.outputs[0].data)


def test_notebook_shows_tables_and_drawings(executed):
    pages = shown(executed, "\npages")
    assert '<th scope="row">hijacked.example</th>' in pages["text/html"]
    assert "nowhere" in pages["text/html"]
    assert "… and 16 more" in pages["text/html"]
    assert "detection limit" in pages["text/plain"]
    drawing = shown(executed, "pages.plot()")["text/html"]
    assert drawing.startswith('<img alt="Estimated shares: ')
    for library in ("pd.DataFrame.from_arrow(pages)", "pl.DataFrame(pages)"):
        cell = next(each for each in executed.cells if library in each.source)
        assert all(page in cell.outputs[0].data["text/html"] for page in ("news.", "hijacked."))


def test_notebook_marks_the_day_of_change(executed):
    """Shares of 10,000 a day step by 15 and 10 points, over 10 standard errors; seeded."""
    assert "10.4% → 25.3% since 9 November" in shown(executed, "\ndays")["text/html"]
    assert (
        "50.4% → 39.4% since 9 November"
        in shown(executed, 'by="day", **source).plot()')["text/html"]
    )


def test_notebook_is_kept_without_outputs():
    notebook = read(SOURCE)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a store, its registry, an export and a list of candidates."""
    folder = tmp_path_factory.mktemp("sources")
    shutil.copy(SOURCE / "metrics.toml", folder)
    asyncio.run(fill(f"sqlite:///{folder}/hubbub.db"))
    (folder / "names.txt").write_text("\n".join(CANDIDATES), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        pytest.param("homepage", {"method": "regression"}, marks=pytest.mark.long),
        ("homepage", {"by": "day", "correction": "bonferroni", "alpha": 0.01}),
        (
            "homepage",
            {
                "since": "2026-11-03",
                "until": "2026-11-04",
                "method": "regression",
                "detected_only": True,
            },
        ),
        ("theme", {}),
    ],
)
def test_result_is_the_commands(folder, metric, options):
    """A list of candidates gives the numbers of a file of them, and both those of the command."""
    where: dict[str, Any] = {
        "metrics": folder / "metrics.toml",
        "store": f"sqlite:///{folder}/hubbub.db",
    }
    arguments = ["--detected-only"] if options.get("detected_only") else []
    for name, value in (where | options).items():
        if value is not True:
            arguments += [f"--{name}", str(value)]
    listed: list[dict[str, Any]] = [{}]
    if metric == "homepage":
        names = folder / "names.txt"
        listed = [{"candidates": names}, {"candidates": [*CANDIDATES, "nowhere 1"]}]
        arguments += ["--candidates", str(names)]
    results = [decode_metric(metric, **where, **options, **each) for each in listed]
    written = folder / "result.csv"
    command = ["decode", metric, *arguments, "--output", str(written)]
    assert CliRunner().invoke(main, command).exit_code == 0
    for result in results:
        file = io.BytesIO()
        write_csv(result, file)
        assert file.getvalue() == written.read_bytes()


def test_decoding_works_where_a_loop_is_running(folder):
    async def cell() -> Estimates:
        return decode_metric("theme", metrics=folder / "metrics.toml",
                             store=f"sqlite:///{folder}/hubbub.db")  # fmt: skip

    assert len(pl.DataFrame(asyncio.run(cell()))) == 3


def test_mistakes_are_named(folder, monkeypatch):
    metrics, store = folder / "metrics.toml", f"sqlite:///{folder}/hubbub.db"
    with pytest.raises(OptionError, match=r"metrics=\.\.\. is missing"):
        decode_metric("theme")
    with pytest.raises(OptionError, match=r"candidates=\.\.\. "):
        decode_metric("homepage", metrics=metrics, store=store)
    with pytest.raises(OptionError, match=r"candidates=\.\.\.: must be left out"):
        decode_metric("theme", metrics=metrics, store=store, candidates=["a"])
    with pytest.raises(CandidateError, match="at least one string"):
        decode_metric("homepage", metrics=metrics, store=store, candidates=[])
    with pytest.raises(ValueError, match="by=week: must be day, or one of the dimensions"):
        decode_metric("theme", metrics=metrics, store=store, by="week")
    with pytest.raises(ValueError, match="alpha=2: must be between 0 and 1"):
        decode_metric("theme", metrics=metrics, store=store, alpha=2)
    with pytest.raises(ValueError, match="method='guess': must be one of"):
        decode_metric("theme", metrics=metrics, store=store, method="guess")
    monkeypatch.setenv("HUBBUB_MIN_REPORTS", "1000000")
    with pytest.raises(UndecodableError, match="at least 1,000,000 are needed to decode"):
        decode_metric("theme", metrics=metrics, store=store)
