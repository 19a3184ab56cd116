"""google/rappor's users of associations decode with hubbub: their files in, a table out."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from association_data import draw, strings_and_flags, write_files
from hubbub.decoder import decode_metric
from hubbub.decoder.cli.group import main
from hubbub.inference.errors import InputError
from hubbub.inference.params import DecodingParams
from significance import z_limit

PARAMS = DecodingParams(k=12, h=2, m=32, f=0.25, p=0.25, q=0.75)
POPULATION = strings_and_flags(
    [30, 20, 10, 5, 3], [0.8, 0.2, 0.5, 0.3, 0.4], absent=3, unlisted=[4]
)
N_REPORTS = 30_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("associations")
    write_files(path, draw(POPULATION, PARAMS, N_REPORTS, np.random.default_rng(1)))
    return path


def decode(folder: Path, *options: object) -> Result:
    files = ["--schema", folder / "rappor-vars.csv", "--reports", folder / "reports.csv"]
    return CliRunner().invoke(main, ["decode", *map(str, [*files, *options])])


def test_estimates_from_their_files_hold_the_truth(folder, tmp_path):
    """Errors of 16 cells in standard errors; P(false alarm) < 1e-6 (Bonferroni, normal)."""
    output = tmp_path / "table.csv"
    done = decode(folder, "--map", f"page={folder / 'page_map.csv'}", "--output", output)
    assert done.exit_code == 0, done.output
    with output.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["page"] for row in rows[::2]] == [f"v{i + 1}" for i in range(7)] + ["Other"]
    assert [row["flag"] for row in rows[:2]] == ["false", "true"]
    errors = np.array([float(row["proportion"]) for row in rows]) - POPULATION.cells.ravel()
    z = errors / [float(row["prop_std_error"]) for row in rows]
    assert np.abs(z).max() < z_limit(len(rows))
    refit = np.array([float(row["refit"]) for row in rows])
    assert refit.min() >= 0
    assert refit.sum() == pytest.approx(1)
    assert np.abs(refit - POPULATION.cells.ravel()).sum() < np.abs(errors).sum()


def test_python_takes_what_the_command_takes(folder, tmp_path):
    output = tmp_path / "table.json"
    done = decode(
        folder, "pages", "--map", f"page={folder / 'page_map.csv'}", "--output", output,
        "--params", folder / "pages_params.csv",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    written = json.loads(output.read_text(encoding="utf-8"))
    result = decode_metric(
        schema=folder / "rappor-vars.csv",
        reports=folder / "reports.csv",
        map={"page": folder / "page_map.csv"},
    )
    document = result.document()
    assert written["summary"]["reports"] == N_REPORTS
    assert written["margins"] == json.loads(json.dumps(document["margins"]))
    rows = [row for part in result.parts() for row in part["refit"]]
    np.testing.assert_allclose([row["refit"] for row in written["rows"]], rows, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "needs --map page=FILE, and no other"),
        (["--map", "map.csv"], "--map map.csv: must be VARIABLE=FILE with --schema"),
        (["--map", "page=m.csv", "--map", "flag=m.csv"], "needs --map page=FILE, and no other"),
        (["--counts", "counts.csv"], "--counts: must be left out"),
        (["--metrics", "metrics.toml"], "--metrics: must be left out"),
        (["--since", "2026-11-01"], "--since: must be left out"),
        (["--candidates", "names.txt"], "--candidates: must be left out"),
        (["--method", "regression"], "--method regression can't be combined with --schema"),
        (["--extend", "v"], "--extend: must be left out"),
        (["--by", "day"], "--by day needs a store"),
        (["--params", "nowhere.csv", "--map", "page=map.csv"], "nowhere.csv"),
        (["other", "--map", "page=map.csv"], "no metric 'other'; expected one of: 'pages'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(folder, options, message):
    done = decode(folder, *options)
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


def test_a_schema_needs_reports(folder):
    done = CliRunner().invoke(main, ["decode", "--schema", str(folder / "rappor-vars.csv")])
    assert done.exit_code != 0
    assert "Missing option '--reports': --schema needs it." in done.output


def test_maps_of_variables_need_a_schema():
    done = CliRunner().invoke(
        main, ["decode", "--params", "p.csv", "--counts", "c.csv", "--map", "page=m.csv"]
    )
    assert done.exit_code != 0
    assert "--map VARIABLE=FILE belongs to --schema" in done.output


def test_too_few_reports_are_not_decoded(folder):
    done = decode(
        folder, "--map", f"page={folder / 'page_map.csv'}", "--min-reports", N_REPORTS + 1
    )
    assert done.exit_code != 0
    assert "30,000" in done.output


def test_a_map_for_another_k_is_refused_with_both(folder, tmp_path):
    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n16,2,32,0.25,0.75,0.25\n")
    with pytest.raises(InputError, match=r"positions are for k = 12"):
        decode_metric(
            schema=folder / "rappor-vars.csv",
            reports=folder / "reports.csv",
            params=tmp_path / "params.csv",
            map={"page": folder / "page_map.csv"},
        )
