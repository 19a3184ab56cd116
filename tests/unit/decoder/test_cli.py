"""Mistakes on the decoder's command line are told before any work is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from factories import make_metric, registry_toml
from hubbub.client.kinds import BooleanKind, EnumKind, Kind, OrdinalKind
from hubbub.decoder.cli import main


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
def test_metric_that_is_no_string_is_refused(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(make_metric(kind=kind)), encoding="utf-8")
    arguments = ["decode", "homepage", "--metrics", str(path), "--candidates", "-"]
    result = CliRunner().invoke(main, arguments, input="light\n")
    assert result.exit_code != 0
    assert f"metrics.homepage.type = '{kind.name}': must be 'string'" in result.stderr


@pytest.mark.parametrize("missing", ["--metrics", "--candidates"])
def test_required_option_is_named(missing: str) -> None:
    options = {"--metrics": "metrics.toml", "--candidates": "names.txt"}
    del options[missing]
    arguments = [word for pair in options.items() for word in pair]
    result = CliRunner().invoke(main, ["decode", "homepage", *arguments])
    assert result.exit_code != 0
    assert f"Missing option '{missing}'" in result.stderr


def test_help_explains_every_option() -> None:
    text = CliRunner().invoke(main, ["decode", "--help"]).stdout
    for option in ("--store", "--since", "--until", "--alpha", "--correction", "--detected-only",
                   "--output", "--rows"):  # fmt: skip
        assert option in text
