"""A metric type from outside: an installed package brings it, and no product code is touched."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from factories import make_metric, make_secret
from hubbub.client import Encoder, EncodingError, Registry
from hubbub.decoder import CohortCounts, decoder_of
from hubbub.decoder.cli import main
from hubbub.inference import DecoderError, decode_categories
from hubbub.protocol import METRIC_TYPES, ListedValues, MetricError, MetricType, RapporParams, Value
from hubbub.simulations import report_through_clients
from programs import forked_collector

LETTERS = Path(__file__).parent / "letters"
ENTRY_POINTS = """
[hubbub.metric_types]
letter = letter_type:LetterType
[hubbub.type_decoders]
letter = letter_decoder:LetterDecoder
"""
REGISTRY = """
application = "com.example.browser"
[metrics.initial]
version = 1
type = "letter"
description = "What the first name begins with"
owner = "privacy@example.com"
expires = 2099-12-31
f = 0.1
p = 0.1
q = 0.9
"""
HELD = {"a": 30, "m": 18, "z": 12}
FAR = 6.0
"""Standard errors: a normal variable is farther off with probability 2e-9."""


@pytest.fixture
def metrics(tmp_path) -> Path:
    """Write a registry that asks for the type."""
    path = tmp_path / "metrics.toml"
    path.write_text(REGISTRY, encoding="utf-8")
    return path


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install the package for this process and for those that it starts, as pip would."""
    described = tmp_path / "site" / "letters-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: letters\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(ENTRY_POINTS)
    folders = [str(described.parent), str(LETTERS)]
    for folder in folders:
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", ":".join(folders))
    yield
    METRIC_TYPES.pop("letter", None)


@pytest.mark.usefixtures("installed")
def test_a_packages_type_is_recorded_collected_and_decoded(metrics, tmp_path):
    """26 shares within 6 standard errors: P(false alarm) < 1e-7."""
    values = [letter for letter, clients in HELD.items() for _ in range(clients)]
    registry = Registry.load(metrics)
    with forked_collector(metrics, tmp_path / "hubbub.db") as collector:
        report_through_clients(
            registry, "initial", values, collector.url, lambda _done, _total: None
        )
    where = ["--metrics", str(metrics), "--store", f"sqlite:///{tmp_path}/hubbub.db"]
    command = ["decode", "initial", *where, "--min-reports", "1"]
    done = CliRunner().invoke(main, [*command, "--output", "-"])
    assert (done.exit_code, done.stderr) == (0, "")
    rows = {row["category"]: row for row in csv.DictReader(io.StringIO(done.stdout, newline=""))}
    assert "".join(rows) == "abcdefghijklmnopqrstuvwxyz"
    for letter, row in rows.items():
        error = float(row["unbiased"]) - HELD.get(letter, 0) / len(values)
        assert abs(error) < FAR * float(row["prop_std_error"])
    assert {letter for letter, row in rows.items() if row["detected"] == "true"} >= {"a"}
    refused = CliRunner().invoke(main, [*command, "--candidates", "-"], input="a\n")
    assert "metrics.initial.type = 'letter' says which values there are" in refused.stderr


@pytest.mark.usefixtures("installed")
def test_privacy_figures_know_the_type(metrics, tmp_path):
    output = tmp_path / "figures.json"
    command = ["privacy", str(metrics), "--reports", "1e5", "--output", str(output)]
    assert CliRunner().invoke(main, command).exit_code == 0
    figures = json.loads(output.read_text(encoding="utf-8"))["metrics"]["initial"]
    metric = Registry.load(metrics)["initial"]
    assert figures["epsilon_report"]["value"] == metric.epsilon_report
    assert 0 < figures["central_blanket"]["value"] < metric.epsilon_report


def test_a_type_that_no_package_has_is_refused_by_name(metrics):
    with pytest.raises(MetricError, match=r"initial\.type = 'letter': must be one of: string"):
        Registry.load(metrics)


@pytest.mark.usefixtures("installed")
def test_a_type_without_a_decoder_is_refused_by_name(metrics):
    metric = Registry.load(metrics)["initial"]
    other = type("OtherType", (type(metric.type),), {"__slots__": (), "name": "other"})
    with pytest.raises(DecoderError, match="'other': no installed package decodes this type"):
        decoder_of(metric._replace(type=other()))


@pytest.mark.usefixtures("installed")
def test_a_decoder_with_other_values_than_its_type_is_refused(metrics, monkeypatch):
    metric = Registry.load(metrics)["initial"]
    few = ListedValues(("a", "b"))
    monkeypatch.setattr(type(metric.type), "listed_values", lambda _self: few)
    counts = CohortCounts(np.array([100]), np.full((1, 32), 20))
    with pytest.raises(DecoderError, match=r"'letter': 2 names of values; .* must have 26"):
        decode_categories(counts, metric)


class PairType(MetricType):
    """Claims one bit per value, and sets two."""

    __slots__ = ()
    name = "pair"

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> PairType:  # noqa: ARG003
        return cls()

    @property
    def width(self) -> int:
        return 8

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:  # noqa: ARG002
        return 3 if value == "two" else 1 << 8


class TriadType(PairType):
    """Says that it sets two bits, and states no epsilon for that."""

    __slots__ = ()
    name = "triad"

    def true_bits(self, params: RapporParams) -> range:  # noqa: ARG002
        return range(2, 3)


@pytest.mark.parametrize("value", ["two", "beyond the filter"])
def test_a_type_that_sets_more_bits_than_its_epsilon_allows_for_is_not_encoded(value):
    encoder = Encoder(make_metric(metric_type=PairType()), make_secret())
    with pytest.raises(EncodingError, match="as type 'pair' makes them: must be 1 to 1 of the"):
        encoder.encode(value)


def test_a_type_of_many_bits_must_state_its_epsilons(monkeypatch):
    monkeypatch.setitem(METRIC_TYPES, "triad", TriadType)
    with pytest.raises(MetricError, match=r"initial\.type = 'triad': values with more than 1 bits"):
        Registry.parse(REGISTRY.replace('"letter"', '"triad"'))
