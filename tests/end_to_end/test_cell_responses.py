"""A subset of categories and a number's cell: through real clients, a collector and the decoder."""

import csv
import io
import json

import pytest
from click.testing import CliRunner

from hubbub.client import Registry
from hubbub.decoder.cli import main
from hubbub.simulations.experiments.collecting import report_through_clients
from programs import forked_collector

REGISTRY = """
application = "com.example.browser"
[metrics.theme]
version = 1
type = "enum"
categories = ["light", "dark", "system", "sepia"]
response = "subset"
size = 1
q = 0.9
mode = "one-time"
description = "Colours"
owner = "privacy@example.com"
expires = 2099-12-31
[metrics.minutes]
version = 1
type = "number"
low = 0
high = 60
cells = 8
window = 2
q = 0.9
variance = true
mode = "one-time"
description = "Minutes of use"
owner = "privacy@example.com"
expires = 2099-12-31
"""
THEMES = ["light"] * 30 + ["dark"] * 10
MINUTES = [10.0] * 20 + [50] * 18 + [75] * 2
FAR = 6.0
"""Standard errors: about the chance 1e-9 of a normal variable, each time."""


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    """Collect what 80 clients report; return the options that name the store."""
    folder = tmp_path_factory.mktemp("cells")
    metrics = folder / "metrics.toml"
    metrics.write_text(REGISTRY, encoding="utf-8")
    registry = Registry.load(metrics)
    with forked_collector(metrics, folder / "hubbub.db") as collector:
        for name, values in (("theme", THEMES), ("minutes", MINUTES)):
            report_through_clients(registry, name, values, collector.url, lambda _done, _all: None)
    return ["--metrics", str(metrics), "--store", f"sqlite:///{folder}/hubbub.db"]


def decode(where, metric, *options):
    command = ["decode", metric, *where, "--min-reports", "1", *options]
    return CliRunner().invoke(main, command)


def rows(where, metric, *options):
    done = decode(where, metric, "--output", "-", *options)
    assert (done.exit_code, done.stderr) == (0, "")
    return list(csv.DictReader(io.StringIO(done.stdout, newline="")))


def test_subsets_of_real_clients_show_their_categories(where):
    found = {row["category"]: row for row in rows(where, "theme")}
    assert list(found) == ["light", "dark", "system", "sepia"]
    for name, row in found.items():
        truth = THEMES.count(name) / len(THEMES)
        assert abs(float(row["unbiased"]) - truth) < FAR * float(row["prop_std_error"])
    assert found["light"]["detected"] == "true"


def test_numbers_of_real_clients_have_their_mean_and_variance(where):
    capped = [min(each, 60) for each in MINUTES]
    mean = sum(capped) / len(capped)
    truth = mean, sum(each**2 for each in capped) / len(capped) - mean**2
    found = rows(where, "minutes")
    assert [row["statistic"] for row in found] == ["mean", "variance"]
    for row, value in zip(found, truth, strict=True):
        assert abs(float(row["unbiased"]) - value) < FAR * float(row["std_error"])


def test_days_and_documents_hold_them_as_well(where, tmp_path):
    assert {row["statistic"] for row in rows(where, "minutes", "--by", "day")} == {
        "mean", "variance",
    }  # fmt: skip
    assert {row["category"] for row in rows(where, "theme", "--by", "day")} >= {"light"}
    page, document = tmp_path / "minutes.html", tmp_path / "minutes.json"
    done = decode(where, "minutes", "--output", str(page), "--output", str(document))
    assert done.exit_code == 0
    assert "SUSPICIOUS" not in done.output
    assert "the mean is estimated at" in page.read_text(encoding="utf-8")
    found = json.loads(document.read_text(encoding="utf-8"))
    assert found["anomalies"]["set_bits"] == {
        "assessed": True, "improbable": 0, "plausible": [1, 1],
    }  # fmt: skip
