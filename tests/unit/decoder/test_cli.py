"""Mistakes on the decoder's command line are told before any work is done."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from factories import make_metric, make_params, registry_toml
from hubbub.client.kinds import BooleanKind, EnumKind, Kind, OrdinalKind
from hubbub.collector.store import MetricVersion, NewBatch, open_store
from hubbub.collector.store.records import Records
from hubbub.decoder.cli import main
from hubbub.decoder.release import MIN_REPORTS
from unit.collector.forgeries import joined, records_of


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--output", "result.txt"), "'result.txt' must end in .csv or .json, or be -"),
        (("--output", ""), "'' must end in .csv or .json, or be -"),
        (("--since", "yesterday"), "'yesterday' does not match the format '%Y-%m-%d'"),
        (("--until", "2026-02-30"), "'2026-02-30' does not match the format"),
        (("--alpha", "0"), "is not in the range 0<x<1"),
        (("--alpha", "1"), "is not in the range 0<x<1"),
        (("--alpha", "nan"), "is not in the range 0<x<1"),
        (("--correction", "none"), "'none' is not one of 'bh', 'bonferroni'"),
        (("--rows", "0"), "0 is not in the range x>=1"),
        (("--min-reports", "0"), "0 is not in the range x>=1"),
        (("--store", "mysql://host/db"), "store 'mysql://host/db': must be sqlite:///PATH"),
    ],
)
def test_mistake_is_named(metrics_file: Path, arguments: tuple[str, ...], reason: str) -> None:
    given = ["decode", "homepage", "--metrics", str(metrics_file), "--candidates", "-", *arguments]
    result = CliRunner().invoke(main, given, input="a\n")
    assert result.exit_code != 0
    assert reason in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "kind", [BooleanKind(), EnumKind(("light", "dark")), OrdinalKind((1.0,))], ids=lambda k: k.name
)
@pytest.mark.parametrize("option", ["--candidates", "--map"])
def test_candidates_are_refused_where_the_registry_lists_the_values(
    tmp_path: Path, kind: Kind, option: str
) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(make_metric(kind=kind)), encoding="utf-8")
    arguments = ["decode", "homepage", "--metrics", str(path), option, "-"]
    result = CliRunner().invoke(main, arguments, input="light\n")
    assert result.exit_code != 0
    assert f"{option}: must be left out; metrics.homepage.type = '{kind.name}'" in result.stderr


@pytest.mark.parametrize("missing", ["--metrics", "--candidates"])
def test_required_option_is_named(metrics_file: Path, missing: str) -> None:
    options = {"--metrics": str(metrics_file), "--candidates": "names.txt"}
    del options[missing]
    arguments = [word for pair in options.items() for word in pair]
    result = CliRunner().invoke(main, ["decode", "homepage", *arguments])
    assert result.exit_code != 0
    assert f"Missing option '{missing}'" in result.stderr


def test_help_explains_every_option() -> None:
    text = CliRunner().invoke(main, ["decode", "--help"]).stdout
    for option in ("--store", "--since", "--until", "--alpha", "--correction", "--detected-only",
                   "--output", "--rows", "--min-reports", "HUBBUB_MIN_REPORTS"):  # fmt: skip
        assert option in text


def filled_store(folder: Path, records: Records) -> str:
    """Return the address of a new store with these reports of homepage."""
    metric, url = make_metric(), f"sqlite:///{folder}/hubbub.db"
    key = MetricVersion(metric.name, metric.version)

    async def fill() -> None:
        async with open_store(url, create=True) as store:
            await store.declare([metric])
            await store.append([NewBatch(bytes(16), {key: records})], dt.date(2026, 11, 1))

    asyncio.run(fill())
    return url


def plausible_records(n: int) -> Records:
    rng = np.random.default_rng(11)
    return records_of(rng.random((n, 128)) < make_params().p_star, rng.integers(64, size=n))


@pytest.mark.parametrize(
    ("options", "environment", "n", "refused"),
    [
        ((), {}, MIN_REPORTS - 1, True),
        ((), {}, MIN_REPORTS, False),
        (("--min-reports", "50"), {}, 49, True),
        (("--min-reports", "50"), {}, 50, False),
        ((), {"HUBBUB_MIN_REPORTS": "50"}, 50, False),
        ((), {"HUBBUB_MIN_REPORTS": "51"}, 50, True),
        (("--min-reports", "50"), {"HUBBUB_MIN_REPORTS": "51"}, 50, False),
        (("--until", "2026-10-31"), {}, MIN_REPORTS, True),
    ],
)
def test_fewer_reports_than_a_release_needs_are_not_decoded(
    metrics_file: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    environment: dict[str, str],
    n: int,
    refused: bool,
) -> None:
    store = filled_store(tmp_path, plausible_records(n))
    where = ["--metrics", str(metrics_file), "--store", store, "--candidates", "-"]
    given = ["decode", "homepage", *where, "--output", "-", *options]
    result = CliRunner().invoke(main, given, input="a\n", env=environment)
    assert (result.exit_code != 0) == refused
    assert (result.stdout == "") == refused
    if refused and "--until" not in options:
        assert f"{n:,} reports of homepage version 1" in result.stderr
        assert "change --min-reports" in result.stderr


def test_refused_decoding_leaves_no_file(metrics_file: Path, tmp_path: Path) -> None:
    store = filled_store(tmp_path, plausible_records(10))
    where = ["--metrics", str(metrics_file), "--store", store, "--candidates", "-"]
    output = tmp_path / "result.json"
    given = ["decode", "homepage", *where, "--output", str(output)]
    assert CliRunner().invoke(main, given, input="a\n").exit_code != 0
    assert not output.exists()


@pytest.mark.parametrize("n_forged", [0, 30])
def test_reports_that_look_forged_are_told_in_the_table_in_json_and_beside_csv(
    metrics_file: Path, tmp_path: Path, n_forged: int
) -> None:
    forged = records_of(np.zeros((n_forged, 128)), 7)
    store = filled_store(tmp_path, joined(plausible_records(3000), forged))
    output = tmp_path / "result.json"
    where = ["--metrics", str(metrics_file), "--store", store, "--candidates", "-"]
    given = ["decode", "homepage", *where, "--output"]
    table = CliRunner().invoke(main, [*given, str(output)], input="a\n")
    piped = CliRunner().invoke(main, [*given, "-"], input="a\n")
    assert (table.exit_code, piped.exit_code) == (0, 0)
    assert ("SUSPICIOUS: 30 reports" in table.stdout) == (n_forged > 0)
    assert piped.stderr == (
        ""
        if not n_forged
        else "warning: some reports don't look honest; run without --output - for more\n"
    )
    scrutiny = json.loads(output.read_text(encoding="utf-8"))["scrutiny"]
    assert scrutiny["suspicious"] is (n_forged > 0)
    assert scrutiny["set_bits"]["improbable"] == n_forged
