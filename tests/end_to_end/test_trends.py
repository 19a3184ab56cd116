"""From a store of several days to trends, through the program that people run."""

import asyncio
import csv
import datetime as dt
import io
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

import programs
from factories import make_metric, make_params, registry_toml
from hubbub.protocol.records import Records
from hubbub.reporting.trends import TYPES
from hubbub.simulations.simulated_clients.clients import SimulatedClients
from hubbub.storage import MetricVersion, NewBatch, open_store

FIRST = dt.date(2026, 11, 1)
METRIC = make_metric(params=make_params(k=32, h=2, m=8, f=0.1, p=0.1, q=0.9))
VALUES = ("example.com", "example.org", "hijacked.example")
BEFORE, AFTER = (1500, 1000, 500), (1000, 1000, 1000)
FEW = (50, 50, 50)
DAYS = (BEFORE, BEFORE, BEFORE, BEFORE, FEW, AFTER, AFTER, AFTER)


@dataclass(frozen=True, slots=True)
class Stored:
    """A store of eight days; the sixth is the first of other shares, the fifth is too small."""

    folder: Path

    def decode(self, *options: str) -> subprocess.CompletedProcess[str]:
        where = ("--metrics", "metrics.toml", "--store", "sqlite:///hubbub.db")
        command = ("decode", "homepage", *where, "--candidates", "names.txt", *options)
        return programs.run("hubbub.decoder", *command, folder=self.folder)


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Stored:
    folder = tmp_path_factory.mktemp("trends")
    names = [*VALUES, *(f"nowhere {i}" for i in range(20))]
    (folder / "names.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    (folder / "metrics.toml").write_text(registry_toml(METRIC), encoding="utf-8")
    asyncio.run(fill(f"sqlite:///{folder}/hubbub.db", DAYS))
    return Stored(folder)


async def fill(url: str, days: Sequence[tuple[int, ...]]) -> None:
    fleet = SimulatedClients(VALUES, METRIC.params, np.random.default_rng(20141103))
    async with open_store(url, create=True) as store:
        await store.declare([METRIC])
        for index, clients in enumerate(days):
            cohorts, bits = fleet.report(np.repeat(np.arange(3), clients))
            columns = [cohorts.astype("<u2")[:, None].view(np.uint8), bits]
            records = Records(2 + 4, np.hstack(columns).tobytes())
            batch = NewBatch(index.to_bytes(16, "big"), {MetricVersion("homepage", 1): records})
            await store.append([batch], FIRST + dt.timedelta(days=index))


def test_days_of_a_store_show_what_changed_and_when(stored):
    """Shares below 4.9 standard errors off, 21 values: P(false alarm) < 3e-5; marks: seeded."""
    done = stored.decode("--by", "day", "--correction", "bonferroni", "--output", "-")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
    assert tuple(rows[0]) == tuple(TYPES)
    assert {row["string"] for row in rows} >= {*VALUES, ""}
    for row in rows:
        day = (dt.date.fromisoformat(row["day"]) - FIRST).days
        assert int(row["reports"]) == sum(DAYS[day])
        if DAYS[day] is FEW:
            assert row["count"] == row["proportion"] == row["prop_low"] == ""
        elif row["string"] in VALUES:
            share = DAYS[day][VALUES.index(row["string"])] / sum(DAYS[day])
            error = float(row["proportion"]) - share
            assert abs(error) < 4.9 * float(row["prop_std_error"])
    changed = {(row["string"], row["day"]) for row in rows if row["changed"] == "true"}
    assert changed == {("example.com", "2026-11-06"), ("hijacked.example", "2026-11-06")}


def test_every_form_tells_the_same_and_again_to_the_byte(stored):
    outputs = [f"trends{suffix}" for suffix in (".csv", ".json", ".parquet", ".html")]
    options = [word for name in outputs for word in ("--output", name)]
    first = stored.decode("--by", "day", *options)
    assert first.returncode == 0, first.stderr
    assert "7 of 8 decoded; the others have fewer than 1,000 reports each" in first.stdout
    assert "2026-11-06 ▲" in first.stdout
    contents = [(stored.folder / name).read_bytes() for name in outputs]
    again = stored.decode("--by", "day", *options)
    assert again.stdout == first.stdout
    assert [(stored.folder / name).read_bytes() for name in outputs] == contents
    document = json.loads(contents[1])
    assert document["rows"] == parquet.read_table(stored.folder / outputs[2]).to_pylist()
    assert {source["role"] for source in document["provenance"]["sources"]} == {
        "candidates", "counts",
    }  # fmt: skip
    assert b"What changed" in contents[3]
    assert str(stored.folder).encode() not in b"".join(contents)


@pytest.mark.long
def test_whole_reports_tell_days_apart_better_than_their_counts(stored):
    """Of the unknown mass, whose error isn't that of drawing clients: less than half as large."""
    errors = {}
    for method in ("likelihood", "regression"):
        output = stored.folder / f"{method}.json"
        done = stored.decode("--by", "day", "--method", method, "--output", str(output))
        assert done.returncode == 0, done.stderr
        document = json.loads(output.read_text(encoding="utf-8"))
        used = "least squares" if method == "regression" else method
        assert document["provenance"]["settings"]["method"] == f"{used}, day by day"
        assert document["summary"]["method"] == used
        rows = [row for row in document["rows"] if row["string"] == "example.com"]
        assert [row["day"] for row in rows if row["changed"]] == ["2026-11-06"]
        assert [row["day"] for row in rows if row["proportion"] is None] == ["2026-11-05"]
        rows = [row for row in document["rows"] if row["kind"] == "unknown"]
        errors[method] = [row["prop_std_error"] for row in rows if row["proportion"] is not None]
    assert max(errors["likelihood"]) < 0.6 * min(errors["regression"])
