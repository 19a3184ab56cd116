"""google/rappor's users decode with hubbub: their files in, and the same numbers by every way."""

import asyncio
import csv
import datetime as dt
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from factories import make_metric, make_params, registry_toml
from hubbub.client import Metric
from hubbub.collector import main as collector
from hubbub.decoder import count_records
from hubbub.decoder.cli import main
from hubbub.inference import bit_positions
from hubbub.protocol import Records, record_width
from hubbub.simulations import SimulatedClients, as_records
from hubbub.storage import MetricVersion, NewBatch, open_store, write_records
from rappor_clients import Files, Params, map_row, run_clients, write_files, write_reports_of
from significance import z_limit

HELD = {"007": 5000, "NA": 4000, "": 3000, " x ": 2500, 'say "no", twice': 2000, "日本語": 1500}
ABSENT = [f"absent {i}" for i in range(30)]
CANDIDATES = [*HELD, *ABSENT]
TOTAL = sum(HELD.values())
METRIC = make_metric(params=make_params(k=32, h=2, m=8, f=0.2, p=0.2, q=0.8))


def decode(*options: object) -> Result:
    return CliRunner().invoke(main, ["decode", *map(str, options)])


def options_of(files: Files) -> list[str]:
    named = zip(("--params", "--counts", "--map"), files, strict=True)
    return [word for option, path in named for word in (option, str(path))]


@pytest.mark.parametrize(
    "params",
    [
        Params(k=32, h=2, m=16, p=0.25, q=0.75, f=0.25),
        Params(k=27, h=3, m=5, p=0.8, q=0.2, f=0.0),
        Params(k=16, h=1, m=64, p=0.1, q=0.9, f=0.5),
    ],
    ids=str,
)
def test_estimates_from_their_files_hold_the_truth(tmp_path, params):
    """Errors of 36 counts in standard errors; P(false alarm) < 1e-6 (Bonferroni, normal)."""
    files = write_reports_of(tmp_path, params, HELD, CANDIDATES)
    output = tmp_path / "result.csv"
    done = decode(*options_of(files), "--output", output)
    assert done.exit_code == 0, done.stderr
    assert re.search(rf"^reports +{TOTAL:,}\b", done.stdout, re.MULTILINE)
    assert "epsilon of one report" in done.stdout
    with output.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["string"] for row in rows] == CANDIDATES
    errors = [float(row["count"]) - HELD.get(row["string"], 0) for row in rows]
    z = np.array(errors) / [float(row["std_error"]) for row in rows]
    assert np.abs(z).max() < z_limit(len(CANDIDATES))
    assert {row["string"] for row in rows if row["detected"] == "true"} >= set(list(HELD)[:5])


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Files:
    """Write the counts of all clients, their parameters and a map."""
    params = Params(k=32, h=2, m=16, p=0.25, q=0.75, f=0.25)
    return write_reports_of(tmp_path_factory.mktemp("files"), params, HELD, CANDIDATES)


@pytest.mark.parametrize("way", ["usual", "three files"])
def test_counts_wait_for_no_library_that_they_do_not_need(own, way):
    """Databases' libraries, pages, Parquet, and what SciPy takes longest to import."""
    code = (
        "import sys; from hubbub.decoder.cli import main; main(standalone_mode=False); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "decode", *own[way], "--method", "regression"],
        capture_output=True, encoding="utf-8", timeout=120, check=True,
    )  # fmt: skip
    slow = {"sqlalchemy", "jinja2", "rich.progress", "pyarrow", "vl_convert"}
    slow |= {"scipy.stats", "scipy.optimize", "asyncio", "hubbub.reporting.drawings"}
    loaded = set(done.stderr.split())
    assert (slow | {"hubbub.inference.likelihood.decoding"}) & loaded == set()


def test_linear_algebra_starts_no_threads_that_would_only_wait(files):
    code = (
        "import sys; from hubbub.decoder.cli import main; main(standalone_mode=False); "
        "from threadpoolctl import threadpool_info; "
        "print(*(each['num_threads'] for each in threadpool_info()), file=sys.stderr)"
    )
    environment = {name: value for name, value in os.environ.items() if "THREADS" not in name}
    done = subprocess.run(
        [sys.executable, "-c", code, "decode", *options_of(files)],
        capture_output=True, encoding="utf-8", timeout=120, check=True, env=environment,
    )  # fmt: skip
    assert set(done.stderr.split()) == {"1"}


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> dict[str, list[str]]:
    """Write the same reports of our own clients in every way in which they can be decoded."""
    folder = tmp_path_factory.mktemp("own")
    params, words = METRIC.params, tuple(HELD)
    held = np.repeat(np.arange(len(words)), list(HELD.values()))
    data = as_records(
        *SimulatedClients(words, params, np.random.default_rng(20140814)).report(held)
    )
    records = Records(record_width(params.k), data)
    registry, names = folder / "metrics.toml", folder / "names.txt"
    registry.write_text(registry_toml(METRIC), encoding="utf-8")
    names.write_text("\n".join([*CANDIDATES, ""]), encoding="utf-8", newline="")
    metric = [METRIC.name, "--metrics", str(registry)]
    store = ["--store", store_records(folder, METRIC, records)]
    parquet = folder / "reports.parquet"
    write_records(parquet, records.width, [records])
    files = write_own_files(folder, data)
    listed, mapped = ["--candidates", str(names)], ["--map", str(files.map)]
    file, six = ["--reports", str(parquet)], ["--params", str(files.params)]
    return {
        "usual": [*metric, *store, *listed],
        "store and map": [*metric, *store, *mapped],
        "file of a metric": [*metric, *file, *listed],
        "file of a metric and map": [*metric, *file, *mapped],
        "file and parameters": [*file, *six, *listed],
        "file, parameters and map": [*file, *six, *mapped],
        "three files": options_of(files),
    }


def store_records(folder: Path, metric: Metric, records: Records) -> str:
    url = f"sqlite:///{folder / 'hubbub.db'}"
    key = MetricVersion(metric.name, metric.version)

    async def fill() -> None:
        async with open_store(url, create=True) as store:
            await store.declare([metric])
            await store.append([NewBatch(bytes(16), {key: records})], dt.date(2026, 11, 1))

    asyncio.run(fill())
    return url


def write_own_files(folder: Path, data: bytes) -> Files:
    """Write our reports as google/rappor's three files, with our hash in the map."""
    params = METRIC.params
    counts = count_records(data, params)
    offsets = 1 + params.k * np.arange(params.m)[:, None]
    positions = bit_positions(CANDIDATES, params).astype(np.int64) + offsets
    return write_files(
        folder,
        [params.k, params.h, params.m, params.p, params.q, params.f],
        np.column_stack([counts.reports, counts.bits]).tolist(),
        [[word, *row.ravel().tolist()] for word, row in zip(CANDIDATES, positions, strict=True)],
    )


@pytest.mark.parametrize("method", ["regression", "likelihood"])
def test_every_way_of_input_gives_the_same_bytes(own, method):
    """Counts have no whole reports, which the likelihood needs."""
    ways = {way: own[way] for way in own if method == "regression" or way != "three files"}
    how = ["--method", method, "--output", "-"]
    results = {way: decode(*options, *how) for way, options in ways.items()}
    usual = results["usual"]
    assert usual.stdout.count("true") >= 5
    for way, result in results.items():
        assert (way, result.exit_code, result.stderr) == (way, 0, "")
        assert result.stdout_bytes == usual.stdout_bytes, way


def test_anomalies_need_reports_and_are_the_same_in_a_file(own, tmp_path):
    found = {}
    for way, options in own.items():
        output = tmp_path / "result.json"
        assert decode(*options, "--method", "regression", "--output", output).exit_code == 0
        found[way] = json.loads(output.read_text(encoding="utf-8"))["anomalies"]
    assert found.pop("three files") is None
    assert found["usual"]["suspicious"] is False
    assert all(findings == found["usual"] for findings in found.values())


def test_imported_reports_are_decoded_with_their_map(tmp_path):
    """Errors of 36 counts in standard errors; P(false alarm) < 1e-6 (Bonferroni, normal)."""
    params = Params(k=32, h=2, m=8, p=0.2, q=0.8, f=0.25)
    metric = make_metric(params=make_params(k=32, h=2, m=8, f=0.25, p=0.2, q=0.8))
    (tmp_path / "metrics.toml").write_text(registry_toml(metric), encoding="utf-8")
    reports, width = tmp_path / "reports.parquet", record_width(32)
    records = b"".join(
        cohort.to_bytes(2, "little") + int(bits, 2).to_bytes(4, "little")
        for cohort, bits in run_clients(params, HELD)
    )
    write_records(reports, width, [Records(width, records)])
    map_file = write_files(tmp_path, params, [], (map_row(w, params) for w in CANDIDATES)).map
    where = ["--metrics", str(tmp_path / "metrics.toml"), "--store", f"sqlite:///{tmp_path}/h.db"]
    whose = ["--metric", metric.name, "--day", "2026-11-01"]
    assert CliRunner().invoke(collector, ["import", str(reports), *whose, *where]).exit_code == 0
    result = decode(metric.name, *where, "--map", map_file, "--output", "-")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    z = [
        (float(row["count"]) - HELD.get(row["string"], 0)) / float(row["std_error"]) for row in rows
    ]
    assert len(z) == len(CANDIDATES)
    assert max(map(abs, z)) < z_limit(len(CANDIDATES))
    assert sum(row["detected"] == "true" for row in rows) >= 5


def test_file_of_an_export_must_be_of_the_metric(tmp_path):
    records = Records(record_width(32), bytes(record_width(32)))
    part, day = tmp_path / "part-0.parquet", "metric=other/version=3/day=2026-11-01"
    about = {"partition": day, "definition": "{}", "slice": ""}
    write_records(part, records.width, [records], about)
    registry, names = tmp_path / "metrics.toml", tmp_path / "names.txt"
    registry.write_text(registry_toml(METRIC), encoding="utf-8")
    names.write_text("a\n", encoding="utf-8")
    result = decode(METRIC.name, "--metrics", registry, "--reports", part, "--candidates", names)
    assert "reports of other version 3; expected those of homepage version 1" in result.stderr
