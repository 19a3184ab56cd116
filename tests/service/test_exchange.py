"""The commands `export` and `import`, and the decoder on what they leave, as people run them."""

import asyncio
import contextlib
import datetime as dt
import os
import secrets
import signal
import subprocess
import sys
import sysconfig
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from factories import make_metric, make_params, registry_toml
from hubbub.collector import main
from hubbub.protocol import Records
from hubbub.simulations import SimulatedClients
from hubbub.storage import MetricVersion, NewBatch, StoreError, open_store, write_records
from service.posting import stored_count, stored_records, wait_until

SECONDS = 120
DAYS = (dt.date(2026, 3, 14), dt.date(2026, 3, 15))
METRIC = make_metric(params=make_params(k=32, h=2, m=8, f=0.1, p=0.1, q=0.9))
KEY = MetricVersion("homepage", 1)
VALUES = ("example.com", "example.org", "example.net")
WIDTH = 6


@dataclass(frozen=True, slots=True)
class Filled:
    """A database with 6,000 reports of two days, and what it takes to decode them."""

    folder: Path
    metrics: Path
    candidates: Path

    @property
    def database(self) -> Path:
        return self.folder / "hubbub.db"

    @property
    def store(self) -> str:
        return f"sqlite:///{self.database}"


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run one of the installed programs in this process, where its libraries are imported."""
    (program,) = entry_points(group="console_scripts", name=name)
    done = CliRunner().invoke(program.load(), [*map(str, arguments)], prog_name=name)
    assert isinstance(done.exception, SystemExit | None), done.exception
    streams = done.stdout_bytes.decode(), done.stderr_bytes.decode()
    return subprocess.CompletedProcess([name], done.exit_code, *streams)


def collector(*arguments: object) -> str:
    """Return what a command of hubbub-collector says when all goes well."""
    done = run("hubbub-collector", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def fill(url: str) -> None:
    rng = np.random.default_rng(1)
    fleet = SimulatedClients(VALUES, METRIC.params, rng)
    async with open_store(url, create=True) as store:
        await store.declare([METRIC])
        for day in DAYS:
            for _ in range(3):
                cohorts, bits = fleet.report(rng.integers(0, len(VALUES), 1000))
                table = np.hstack([cohorts.astype("<u2")[:, None].view(np.uint8), bits])
                records = {KEY: Records(WIDTH, table.tobytes())}
                await store.append([NewBatch(secrets.token_bytes(16), records)], day)


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Filled:
    folder = tmp_path_factory.mktemp("exchange")
    found = Filled(folder, folder / "metrics.toml", folder / "candidates.txt")
    found.metrics.write_text(registry_toml(METRIC), encoding="utf-8")
    lines = [*VALUES, *(f"absent {i}" for i in range(10))]
    found.candidates.write_text("\n".join(lines), encoding="utf-8")
    asyncio.run(fill(found.store))
    return found


@pytest.fixture(scope="module")
def out(filled) -> Path:
    collector("export", "--store", filled.store, "--to", filled.folder / "out")
    return filled.folder / "out"


def test_export_lists_what_it_wrote(filled, tmp_path):
    said = collector("export", "--store", filled.store, "--to", tmp_path, "--until", DAYS[0])
    [path] = tmp_path.glob(f"metric=homepage/version=1/day={DAYS[0]}/part-*.parquet")
    assert said.splitlines() == [
        f"{path}: 3,000 reports, {path.stat().st_size:,} bytes",
        f"exported 3,000 reports in 1 file from {filled.store} to {tmp_path}",
    ]
    assert not (path.parents[1] / f"day={DAYS[1]}").exists()


@pytest.mark.parametrize(
    "span",
    [(), pytest.param(("--since", DAYS[1], "--until", DAYS[1]), marks=pytest.mark.long)],
    ids=["all days", "one day"],
)
def test_decoding_an_export_gives_the_same_bytes_as_the_database(filled, out, span):
    def decode(store: str) -> str:
        given = ("--metrics", filled.metrics, "--candidates", filled.candidates)
        done = run(
            "hubbub-decoder", "decode", "homepage", *given, "--store", store, "--output", "-", *span
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    from_database = decode(filled.store)
    assert decode(f"parquet:{out}") == from_database
    assert len(from_database.splitlines()) == 1 + len(VALUES) + 10


def test_duckdb_and_pyarrow_read_an_export_as_it_is(filled, out):
    stored = stored_records(filled.database, METRIC)
    expected = Counter(record[0] for record in stored)
    query = (
        "SELECT cohort, count(*), sum(('0x' || substr(hex(bits), 1, 2))::INTEGER & 1) "
        "FROM read_parquet($files, hive_partitioning=true) "
        "WHERE metric = 'homepage' AND version = 1 AND day >= $since GROUP BY cohort"
    )
    with duckdb.connect() as connection:
        given = {"files": f"{out}/**/*.parquet", "since": DAYS[0]}
        rows = connection.execute(query, given).fetchall()
    assert {cohort: reports for cohort, reports, _ in rows} == expected
    first_bits = Counter(record[0] for record in stored if record[2] & 1)
    assert {cohort: ones for cohort, _, ones in rows} == first_bits
    table = ds.dataset(out, partitioning="hive").to_table(filter=ds.field("day") == str(DAYS[0]))
    assert table.num_rows == 3000
    grouped = ds.dataset(out, partitioning="hive").to_table().group_by("cohort")
    counts = grouped.aggregate([("bits", "count")]).to_pylist()
    assert {row["cohort"]: row["bits_count"] for row in counts} == expected


def test_export_and_import_move_a_store(filled, out, tmp_path):
    """The second import finds everything there, and the moved store is exported alike."""
    database = tmp_path / "moved.db"
    command = ("import", out, "--metrics", filled.metrics, "--store", f"sqlite:///{database}")
    into = f"into sqlite:///{database}"
    assert collector(*command).splitlines()[-1] == f"imported 6,000 reports {into}"
    again = f"imported 0 reports {into}; there before: 6,000"
    assert collector(*command).splitlines()[-1] == again
    here, there = (stored_records(path, METRIC) for path in (filled.database, database))
    assert Counter(there) == Counter(here)
    again = collector("export", "--store", f"sqlite:///{database}", "--to", tmp_path / "out")
    assert "exported 6,000 reports in 2 files" in again


@pytest.mark.long
def test_import_killed_in_the_middle_is_completed_by_the_next(filled, tmp_path):
    """1.5 million reports, which take three transactions; killed once some are there."""
    table = np.random.default_rng(2).integers(0, 256, (1_500_000, WIDTH), dtype=np.uint8)
    table[:, 0] %= 8
    table[:, 1] = 0
    path, database = tmp_path / "r.parquet", tmp_path / "b.db"
    write_records(path, WIDTH, [Records(WIDTH, table.tobytes())])
    command = ["import", path, "--metrics", filled.metrics, "--store", f"sqlite:///{database}"]
    command += ["--metric", "homepage", "--day", DAYS[0]]
    program = Path(sysconfig.get_path("scripts"), "hubbub-collector")
    with subprocess.Popen([str(program), *map(str, command)], stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: process.poll() is not None or _stored_any(database))
        process.send_signal(signal.SIGKILL)
    collector(*command)
    stored = np.array(stored_records(database, METRIC), dtype=f"S{WIDTH}")
    expected = table.view(f"S{WIDTH}").ravel()
    assert np.array_equal(np.sort(stored), np.sort(expected))
    assert collector(*command).endswith("; there before: 1,500,000\n")


def _stored_any(database: Path) -> bool:
    try:
        return stored_count(database, METRIC) > 0
    except StoreError:
        return False  # not made yet


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("import", "bad.parquet", "--metric", "homepage", "--day", "2026-03-14"),
            "row 1, column cohort: 8; expected 0 to 7",
        ),
        (("import", "bad.parquet"), "--metric and --day are needed"),
        (
            ("import", "bad.parquet", "--metric", "x", "--day", "2026-03-14"),
            "must be one of: homepage",
        ),
        (("import", "absent.parquet"), "absent.parquet: No such file or directory; expected a"),
        (("export", "--to", "."), "which isn't an export"),
        (("export", "--to", "new", "--metric", "visits"), "'visits' isn't in the store"),
        (("export", "--to", "new", "--since", "yesterday"), "'yesterday' does not match"),
        (("export", "--to", "new", "--store", "sqlite:///absent.db"), "absent.db"),
    ],
)
def test_impossible_requests_get_one_line(filled, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_records("bad.parquet", WIDTH, [Records(WIDTH, b"\x08" + bytes(5))])
    command = [arguments[0], "--store", filled.store, *arguments[1:]]
    if arguments[0] == "import":
        command += ["--metrics", str(filled.metrics), "--store", "sqlite:///new.db"]
    done = CliRunner().invoke(main, command)
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code != 0
    assert done.stdout == ""
    assert message in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("module", ["collector", "decoder"])
def test_missing_pyarrow_is_reported_with_the_extra_that_brings_it(filled, out, module):
    arguments = {
        "collector": ["export", "--store", filled.store, "--to", str(filled.folder / "none")],
        "decoder": [
            *("decode", "homepage", "--metrics", str(filled.metrics)),
            *("--store", f"parquet:{out}", "--candidates", str(filled.candidates)),
        ],
    }
    hidden = "import sys; sys.modules['pyarrow'] = None; "
    call = f"from hubbub.{module}.cli import main; main({arguments[module]!r})"
    done = subprocess.run(
        [sys.executable, "-c", hidden + call],
        capture_output=True,
        timeout=SECONDS,
        check=False,
        text=True,
    )
    assert done.returncode == 1
    assert "pip install 'hubbub[parquet]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_progress_is_shown_on_a_terminal_alone(filled, tmp_path):
    ours, theirs = os.openpty()
    with contextlib.closing(os.fdopen(ours, "rb", buffering=0)) as terminal:
        program = Path(sysconfig.get_path("scripts"), "hubbub-collector")
        command = [str(program), "export", "--store", filled.store, "--to", str(tmp_path)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=theirs, timeout=SECONDS, check=False
        )
        os.close(theirs)
        assert done.returncode == 0
        assert b"exporting" in terminal.read(4096)
    assert b"\r" not in done.stdout
