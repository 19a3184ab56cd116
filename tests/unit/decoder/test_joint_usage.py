"""`hubbub-decoder decode` on joint metrics: candidates by field."""

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from factories import make_metric, registry_toml
from hubbub.decoder import decode_metric
from hubbub.decoder.cli import main
from hubbub.protocol import Metric, OptionError
from unit.decoder.joint_tables import BY_SITE, enum_metric, noise

CRASHES = enum_metric((3, 2))
SITES = make_metric(name="sites", metric_type=BY_SITE, params=noise(4.0, k=64, m=8), one_time=True)
CLIENTS = 3_000


@pytest.fixture
def folder(tmp_path) -> Path:
    registry = registry_toml(CRASHES, SITES)
    (tmp_path / "metrics.toml").write_text(registry, encoding="utf-8")
    (tmp_path / "sites.txt").write_text("a.example\nb.example\nc.example\n", encoding="utf-8")
    _write(tmp_path / "crashes.parquet", CRASHES, {"crash": "crash 1", "driver": "driver 0"})
    _write(tmp_path / "sites.parquet", SITES, {"site": "b.example", "secure": True})
    return tmp_path


def _write(path: Path, metric: Metric, value: dict[str, object]) -> None:
    """Write reports of clients who all have one value."""
    rng, params = np.random.default_rng(1), metric.params
    cohorts = rng.integers(0, params.m, CLIENTS).astype(np.uint16)
    bits = rng.random((CLIENTS, params.k)) < params.p_star
    own = [metric.type.bits(value, int(cohort), params).bit_length() - 1 for cohort in cohorts]
    bits[np.arange(CLIENTS), own] = rng.random(CLIENTS) < params.q_star
    packed = np.packbits(bits, axis=1, bitorder="little")
    columns = {"cohort": cohorts, "bits": [row.tobytes() for row in packed]}
    pq.write_table(pa.table(columns), path)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["decode", *map(str, arguments)])


def rows_of(result: Result) -> list[dict[str, str]]:
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


def test_fields_without_strings_need_no_candidates(folder):
    found = run(
        *("homepage", "--metrics", folder / "metrics.toml"),
        *("--reports", folder / "crashes.parquet", "--output", "-"),
    )
    rows = rows_of(found)
    assert len(rows) == 6
    detected = [(row["crash"], row["driver"]) for row in rows if row["detected"] == "true"]
    assert detected == [("crash 1", "driver 0")]


@pytest.mark.parametrize("given", ["site={}", "{}"], ids=["by field", "the only field"])
def test_a_field_of_strings_takes_candidates(folder, given):
    found = run(
        *("sites", "--metrics", folder / "metrics.toml", "--reports", folder / "sites.parquet"),
        *("--candidates", given.format(folder / "sites.txt"), "--output", "-"),
    )
    rows = rows_of(found)
    assert [row["site"] for row in rows] == [f"{x}.example" for x in "aabbcc"]
    detected = [(row["site"], row["secure"]) for row in rows if row["detected"] == "true"]
    assert detected == [("b.example", "true")]


def test_python_takes_candidates_by_field(folder):
    found = decode_metric(
        "sites",
        metrics=folder / "metrics.toml",
        reports=folder / "sites.parquet",
        candidates={"site": ["a.example", "b.example"]},
    )
    table = pa.table(found)
    assert table.column_names[:3] == ["site", "secure", "count"]
    assert table.num_rows == 4


def test_candidates_of_fields_are_named_in_the_provenance(folder):
    with pytest.raises(OptionError, match=r"needs candidates\['site'\]=FILE"):
        decode_metric(
            "sites",
            metrics=folder / "metrics.toml",
            reports=folder / "sites.parquet",
            candidates={"page": ["a.example"]},
        )
    output = folder / "out.json"
    found = run(
        *("sites", "--metrics", folder / "metrics.toml", "--reports", folder / "sites.parquet"),
        *("--candidates", f"site={folder / 'sites.txt'}", "--output", output),
    )
    assert found.exit_code == 0
    assert "candidates of site" in output.read_text(encoding="utf-8")
