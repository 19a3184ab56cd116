"""Ten things that people do with hubbub, as short as they can be, for docs/learn/examples.md.

`service` is a collector that runs, with its registry and its store; to `crowd` 4,000 people have
reported (`tests/examples/conftest.py`). Bounds are six standard errors and more: each fails by
chance with a probability below 1e-8.
"""

import os

import pyarrow as pa
from click.testing import CliRunner
from pyarrow import parquet

from examples.conftest import post
from hubbub.client import Encoder, Registry, Telemetry
from hubbub.decoder import compare_metric, decode_metric
from hubbub.decoder.cli import main
from hubbub.release import Dataset


def test_record_a_value(service, tmp_path):
    """A client reports once a period, in noise, whatever the app records."""
    telemetry = Telemetry(service.metrics, service.url, tmp_path, development=True)
    telemetry.record("theme", "dark")
    telemetry.record("theme", "dark")  # dropped: this period is answered
    assert telemetry.flush()
    assert telemetry.status().delivered == 1
    telemetry.close()


def test_preview_what_would_be_sent(service, tmp_path):
    """People may see a report before they agree, in words and as it would travel."""
    telemetry = Telemetry(service.metrics, service.url, tmp_path, consent=False)
    preview = telemetry.preview("theme", "dark")
    assert "epsilon 2" in preview.words
    assert len(preview.report.bits) == 1


def test_collect_reports_of_many_clients(service):
    """A load test needs no app: encode for as many secrets as there are clients, and post."""
    theme = Registry.load(service.metrics)["theme"]
    reports = [Encoder(theme, os.urandom(32)).encode("light") for _ in range(100)]
    assert post(service, reports) == 201


def test_decode_strings_of_a_list(crowd):
    """A row per candidate: its share, a 95% interval, and whether it was detected."""
    result = decode_metric(
        "homepage",
        metrics=crowd.metrics,
        store=crowd.store,
        candidates=["news.example", "hijacked.example", "nobody.example"],
    )
    found = dict(zip(result["string"], result["detected"], strict=True))
    assert found["news.example"]
    assert found["hijacked.example"]


def test_draw_a_chart(crowd, tmp_path):
    """Results draw themselves, for a page, a document or a notebook."""
    result = decode_metric("theme", metrics=crowd.metrics, store=crowd.store)
    result.plot().save(tmp_path / "themes.svg")
    assert "dark" in (tmp_path / "themes.svg").read_text(encoding="utf-8")


def test_decode_an_enum_of_one_release(crowd):
    """`where` chooses reports by what the app said of itself; results are data frames, too."""
    where = {"release": "1.1"}
    result = decode_metric("theme", metrics=crowd.metrics, store=crowd.store, where=where)
    rows = pa.table(result).to_pylist()
    (dark,) = (row for row in rows if row["category"] == "dark")
    assert abs(dark["proportion"] - 0.5) < 6 * dark["prop_std_error"]


def test_decode_the_mean_of_a_number(crowd):
    """A client sends one of 16 cells, in noise: a byte or two."""
    result = decode_metric("start_seconds", metrics=crowd.metrics, store=crowd.store)
    mean = result["estimate"][0]
    assert abs(mean - 20) < 6 * result["std_error"][0]


def test_plan_a_metric():
    """What can be found, with how much privacy, and the entry for metrics.toml."""
    words = ["plan", "categories", "3", "--clients", "1e5", "--epsilon", "2"]
    printed = CliRunner().invoke(main, words).output
    assert "[metrics." in printed
    assert 'response = "subset"' in printed


def test_compare_two_releases(crowd):
    """Which shares differ, at a false discovery rate of 5%."""
    result = compare_metric(
        "theme", "release=1.0", "release=1.1", metrics=crowd.metrics, store=crowd.store
    )
    differs = dict(zip(result["category"], result["differs"], strict=True))
    assert differs["light"]
    assert differs["dark"]


def test_release_statistics_of_a_table(tmp_path):
    """Data that lies in one place: each answer is paid for from a budget, in a ledger."""
    table = {"user": range(5_000), "minutes": [float(n % 60) for n in range(5_000)]}
    parquet.write_table(pa.table(table), tmp_path / "visits.parquet")
    with Dataset.create(
        tmp_path / "visits.parquet",
        ledger=tmp_path / "ledger.db",
        user_column="user",
        epsilon=1,
        bounds={"minutes": (0, 60)},
    ) as dataset:
        (mean,) = dataset.mean("minutes", epsilon="0.5")["value"]
    assert abs(mean - 29.5) < 1
