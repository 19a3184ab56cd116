"""Counts that outlive reports, as people and machines meet them: service, kills, commands."""

import asyncio
import datetime as dt
import json
import random
import secrets
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from factories import make_metric, make_params, registry_toml
from hubbub.collector import generate_secret, main
from hubbub.decoder import decode_metric
from hubbub.inference import UndecodableError
from hubbub.protocol import KeptCounts, Records, keep_counts, keep_none, pack_counts, unpack_counts
from hubbub.reporting import Estimates
from hubbub.simulations import SimulatedClients
from hubbub.storage import MetricVersion, NewBatch, StoredCounts, StoredRecords, open_store
from programs import forked_collector
from service.posting import SECONDS, make_batch, post, send, wait_until

KILLS = 2
METRIC = make_metric(params=make_params(k=32, h=2, m=8, f=0.1, p=0.1, q=0.9))
KEY = MetricVersion("homepage", 1)
VALUES = ("example.com", "example.org", "example.net")
WIDTH = 6
TODAY = dt.datetime.now(dt.UTC).date()
OLD = [TODAY - dt.timedelta(days=age) for age in (40, 31, 2)]

_COUNTING = """
import asyncio, datetime as dt, sys
from hubbub.storage import open_store, segments

segments._REPORTS_AT_ONCE = 20

async def count():
    async with open_store(sys.argv[1], create=True) as store:
        await store.counts.count_reports(dt.date.fromisoformat(sys.argv[2]))

asyncio.run(count())
"""


def records_of(reports: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    fleet = SimulatedClients(VALUES, METRIC.params, rng)
    cohorts, bits = fleet.report(rng.integers(0, len(VALUES), reports))
    return np.hstack([cohorts.astype("<u2")[:, None].view(np.uint8), bits]).tobytes()


def fill(url: str, *contents: tuple[dt.date, bytes]) -> KeptCounts:
    """Store a segment for each; return the counts of all."""

    async def run() -> None:
        async with open_store(url, create=True) as store:
            await store.declare([METRIC])
            for day, records in contents:
                batch = NewBatch(secrets.token_bytes(16), {KEY: Records(WIDTH, records)})
                await store.append([batch], day)

    asyncio.run(run())
    return keep_counts(b"".join(records for _, records in contents), METRIC.params)


def held(url: str) -> tuple[KeptCounts, Counter[str]]:
    """Return the counts of all that is stored, and how many reports are stored in which way."""

    async def run() -> tuple[KeptCounts, Counter[str]]:
        kept, ways = keep_none(METRIC.params), Counter[str]()
        async with open_store(url, create=False) as store:
            async for stored in store.contents(KEY):
                if isinstance(stored, StoredRecords):
                    found = keep_counts(stored.records, METRIC.params)
                    ways["reports"] += found.total
                elif isinstance(stored, StoredCounts):
                    found = stored.kept
                    ways["counts"] += found.total
                kept += found
        return kept, ways

    return asyncio.run(run())


def program(*arguments: object, code: int = 0) -> str:
    """Run a command of hubbub-collector; return what it says."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def metrics(tmp_path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(METRIC), encoding="utf-8")
    return path


def test_collector_counts_what_is_old_and_everything_is_decoded_as_before(
    metrics, any_store_url, tmp_path
):
    def decode(**options: Any) -> Estimates:
        candidates = [*VALUES, "absent"]
        return decode_metric(
            "homepage", metrics=metrics, store=any_store_url, candidates=candidates, **options
        )

    expected = fill(
        any_store_url, *[(day, records_of(1_000, seed)) for seed, day in enumerate(OLD)]
    )
    days = {"until": OLD[-1], "by": "day", "method": "regression"}
    before = pa.table(decode(**days))
    secret, hashed = generate_secret("admin")
    config = tmp_path / "collector.toml"
    config.write_text(
        "report_days = 30\nupkeep_seconds = 0.2\nadmin_port = 0\npublish_seconds = 0.2\n"
        f'[admin_tokens.all]\nsha256 = "{hashed}"\n',
        encoding="utf-8",
    )
    with forked_collector(metrics, any_store_url, ["--config", str(config)]) as collector:
        admin = collector.read_admin_url()
        header = {"Authorization": f"Bearer {secret}"}
        wait_until(lambda: held(any_store_url)[1]["counts"] == 2_000)
        assert post(collector.url, make_batch(7, METRIC)).status == 201
        assert pa.table(decode(**days)).equals(before)
        kept, ways = held(any_store_url)
        assert ways == {"reports": 1_007, "counts": 2_000}
        assert (kept.total, expected.total) == (3_007, 3_000)
        with pytest.raises(UndecodableError, match=f"of days up to {OLD[1]} only counts are kept"):
            decode(method="likelihood")

        def status() -> Any:
            return json.loads(send(admin, "GET", "/status.json", headers=header).body)

        wait_until(lambda: status()["metrics"][0]["reports"] in {3_000, 3_100})  # today's are 7
        (version,) = status()["metrics"][0]["versions"]
        assert version["first_day"] == str(OLD[0])
        assert "count" in {task["task"] for task in status()["upkeep"]}


@pytest.mark.long
@pytest.mark.long_on_postgresql
def test_counting_that_is_killed_loses_and_doubles_nothing(any_store_url):
    chance = random.Random(4)  # noqa: S311
    expected = fill(any_store_url, *[(OLD[0], records_of(20, seed)) for seed in range(100)])
    command = [sys.executable, "-c", _COUNTING, any_store_url, str(TODAY)]
    for _ in range(KILLS):
        before = held(any_store_url)[1]["counts"]
        with subprocess.Popen(command) as process:
            wait_until(lambda before=before: held(any_store_url)[1]["counts"] > before)  # type: ignore[misc]
            time.sleep(0.02 * chance.random())
            process.kill()
        kept, ways = held(any_store_url)
        assert pack_counts(kept) == pack_counts(expected)
        assert ways["counts"] < expected.total
    subprocess.run(command, check=True, timeout=SECONDS)
    kept, ways = held(any_store_url)
    assert pack_counts(kept) == pack_counts(expected)
    assert ways == {"counts": expected.total}


def test_export_and_import_move_counts_with_reports(metrics, tmp_path):
    here, there = (f"sqlite:///{tmp_path}/{name}.db" for name in ("here", "there"))
    fill(here, *[(day, records_of(500, seed)) for seed, day in enumerate(OLD)])
    program("maintain", "--store", here, "--report-days", 30)
    # Late: reports and counts of one day.
    expected = fill(here, (OLD[0], records_of(9, 7)))
    expected, ways = held(here)
    assert ways == {"reports": 509, "counts": 1_000}
    out = tmp_path / "out"
    said = program("export", "--store", here, "--to", out)
    folders = [out / f"metric=homepage/version=1/day={day}" for day in OLD]
    parts = [sorted(folder.glob("part-*.parquet")) for folder in folders]
    counts = [sorted(folder.glob("_counts-*.pq")) for folder in folders]
    assert [[len(files) for files in kind] for kind in (parts, counts)] == [[1, 0, 1], [1, 1, 0]]
    (counted,) = counts[1]
    size = counted.stat().st_size
    assert f"{counted}: counts of 500 reports, {size:,} bytes\n" in said
    assert said.endswith(f"exported 1,509 reports in 4 files from {here} to {out}\n")
    # Others don't take counts for reports.
    with duckdb.connect() as connection:
        query = f"SELECT count(*) FROM read_parquet('{out}/**/*.parquet', hive_partitioning=true)"  # noqa: S608
        assert connection.execute(query).fetchall() == [(509,)]
    command = ("import", out, "--metrics", metrics, "--store", there)
    said = program(*command)
    assert f"{counted.name}: counts of 500 reports of homepage version 1, {OLD[1]}\n" in said
    assert said.endswith(f"imported 1,509 reports into {there}\n")
    imported = f"imported 0 reports into {there}; there before: 1,509\n"
    assert program(*command).endswith(imported)
    kept, moved = held(there)
    assert (pack_counts(kept), moved) == (pack_counts(expected), ways)


def test_counts_that_are_damaged_or_of_others_are_not_imported(metrics, tmp_path):
    here, there = (f"sqlite:///{tmp_path}/{name}.db" for name in ("here", "there"))
    fill(here, (OLD[0], records_of(100, 1)))
    program("maintain", "--store", here, "--report-days", 30)
    program("export", "--store", here, "--to", tmp_path / "out")
    (path,) = tmp_path.glob("out/*/*/*/_counts-*.pq")
    sound = pq.read_table(path)
    command = ("import", path, "--metrics", metrics, "--store", there)
    [packed] = sound["counts"].to_pylist()
    kept = unpack_counts(packed)
    wrong = kept.set_bits.copy()
    wrong[0] += 1
    others = keep_none(make_params(k=32, h=2, m=9, f=0.1, p=0.1, q=0.9))
    for data, fault in (
        (pack_counts(KeptCounts(kept.counts, wrong)), "must agree with the numbers of set bits"),
        (packed[:20], "isn't a file of counts"),
        (b"", "isn't a file of counts"),
        (pack_counts(others), "counts of m = 9, k = 32; expected m = 8, k = 32"),
    ):
        pq.write_table(sound.set_column(0, "counts", [[data]]), path)
        assert fault in program(*command, code=1)
    renamed = sound.rename_columns(["bits"]).replace_schema_metadata(sound.schema.metadata)
    pq.write_table(renamed, path)
    assert "isn't a file of counts" in program(*command, code=1)
    path.write_bytes(b"no parquet")
    assert "expected a Parquet file" in program(*command, code=1)
    assert held(there)[1] == {}
