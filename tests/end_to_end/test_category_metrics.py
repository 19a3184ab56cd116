"""Enums, booleans and ordinals: real clients' reports, a real store, the command, its files."""

import asyncio
import csv
import datetime as dt
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from factories import make_metric, make_params, make_secret, registry_toml
from hubbub.client.encoder import Encoder
from hubbub.decoder.cli import main
from hubbub.protocol.metric_types.base import Value
from hubbub.protocol.metric_types.enums import BooleanType, EnumType, OrdinalType
from hubbub.protocol.records import Records
from hubbub.storage import MetricVersion, NewBatch, open_store

CLEAR = make_params(8, 1, 1, f=0.1, p=0.1, q=0.9)
DAY = dt.date(2026, 11, 1)
METRICS = (
    make_metric("theme", metric_type=EnumType(("light", "dark", "system")), params=CLEAR),
    make_metric("private", metric_type=BooleanType(), params=CLEAR),
    make_metric("tabs", metric_type=OrdinalType((1.0, 5.0, 20.0)), params=CLEAR),
)
HELD: dict[str, dict[Value, int]] = {
    "theme": {"light": 1800, "dark": 1200},
    "private": {True: 900, False: 2100},
    "tabs": {0: 300, 3: 1500, 7.5: 900, 1e9: 300},
}
N = 3000
FAR = 6.0
"""Standard errors: a normal variable is farther off with probability 2e-9."""


@dataclass(frozen=True, slots=True)
class Stored:
    metrics: Path
    store: str

    def decode(self, metric: str, *options: str) -> Result:
        where = ["--metrics", str(self.metrics), "--store", self.store]
        return CliRunner().invoke(main, ["decode", metric, *where, *options])

    def rows(self, metric: str, *options: str) -> dict[str, dict[str, str]]:
        done = self.decode(metric, "--output", "-", *options)
        assert (done.exit_code, done.stderr) == (0, "")
        lines = csv.DictReader(io.StringIO(done.stdout, newline=""))
        return {line["category"]: line for line in lines}


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Stored:
    """Return where the reports of 3,000 clients a metric lie, each from its own encoder."""
    folder = tmp_path_factory.mktemp("categories")
    path, url = folder / "metrics.toml", f"sqlite:///{folder}/hubbub.db"
    path.write_text(registry_toml(*METRICS), encoding="utf-8")
    records = {}
    for metric in METRICS:
        values = [value for value, n in HELD[metric.name].items() for _ in range(n)]
        reports = (
            Encoder(metric, make_secret(client)).encode(value)
            for client, value in enumerate(values)
        )
        data = b"".join(b"\0\0" + report.bits for report in reports)
        records[MetricVersion(metric.name, 1)] = Records(2 + metric.params.k // 8, data)

    async def fill():
        async with open_store(url, create=True) as store:
            await store.declare(METRICS)
            await store.append([NewBatch(bytes(16), records)], DAY)

    asyncio.run(fill())
    return Stored(path, url)


@pytest.mark.parametrize(
    ("metric", "truth"),
    [
        ("theme", {"light": 0.6, "dark": 0.4, "system": 0}),
        ("private", {"false": 0.7, "true": 0.3}),
        ("tabs", {"< 1": 0.1, "[1, 5)": 0.5, "[5, 20)": 0.3, ">= 20": 0.1}),
    ],
)
def test_clients_values_come_out_as_shares(stored, metric, truth):
    """Nine shares within 6 standard errors: P(false alarm) < 1e-7."""
    rows = stored.rows(metric)
    assert list(rows) == list(truth)
    for category, share in truth.items():
        estimate = float(rows[category]["unbiased"])
        assert abs(estimate - share) < FAR * float(rows[category]["prop_std_error"])
        if share:
            assert rows[category]["detected"] == "true"
    assert sum(float(row["proportion"]) for row in rows.values()) == pytest.approx(1)


def test_ordinal_tells_quantiles_in_the_table_and_in_json(stored, tmp_path):
    """Shares below 1, 5 and 20 are 0.1, 0.6 and 0.9: 10 standard errors from the median."""
    output = tmp_path / "tabs.json"
    done = stored.decode("tabs", "--output", str(output))
    assert (done.exit_code, done.stderr) == (0, "")
    document = json.loads(output.read_text(encoding="utf-8"))
    median = document["quantiles"][1]
    assert (median["bucket_low"], median["bucket_high"]) == (1, 5)
    assert (median["low"], median["high"]) == (1, 5)
    assert document["anomalies"]["suspicious"] is False
    assert document["known_rates"]["unused_bits"] == 4
    assert document["summary"]["reports"] == N
    assert "Quantiles" in done.stdout
    assert "4 unused bits are set in" in done.stdout
