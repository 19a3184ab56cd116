"""Mistakes on the decoder's command line are told before any work is done."""

import json
import subprocess
import sys

import click
import numpy as np
import pytest
from click.testing import CliRunner
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

from hubbub.decoder.cli import main
from hubbub.decoder.options import MIN_REPORTS
from unit.collector.forgeries import joined, records_of
from unit.decoder.stores import filled_store, plausible_records

QUICK = ("--method", "regression")
"""For tests that ask nothing of the method: an eighth of the time that likelihood takes."""


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
    metrics_file, tmp_path, options, environment, n, refused
):
    store = filled_store(tmp_path, plausible_records(n))
    where = ["--metrics", str(metrics_file), "--store", store, "--candidates", "-"]
    given = ["decode", "homepage", *where, *QUICK, "--output", "-", *options]
    result = CliRunner().invoke(main, given, input="a\n", env=environment)
    assert (result.exit_code != 0) == refused
    assert (result.stdout == "") == refused
    if refused and "--until" not in options:
        assert f"{n:,} reports of homepage version 1" in result.stderr
        assert "change --min-reports" in result.stderr


@pytest.mark.parametrize("n_forged", [0, 30])
def test_reports_that_look_forged_are_named_in_table_json_and_with_csv(
    metrics_file, tmp_path, n_forged
):
    forged = records_of(np.zeros((n_forged, 128)), 7)
    store = filled_store(tmp_path, joined(plausible_records(3000), forged))
    output = tmp_path / "result.json"
    where = ["--metrics", str(metrics_file), "--store", store, "--candidates", "-"]
    given = ["decode", "homepage", *where, *QUICK, "--output"]
    table = CliRunner().invoke(main, [*given, str(output)], input="a\n")
    piped = CliRunner().invoke(main, [*given, "-"], input="a\n")
    assert (table.exit_code, piped.exit_code) == (0, 0)
    assert ("SUSPICIOUS: 30 reports" in table.stdout) == (n_forged > 0)
    assert ("note: parameters don't fit" in piped.stderr) == (n_forged > 0)
    assert piped.stderr.endswith(
        ""
        if not n_forged
        else "warning: some reports don't look honest; run without --output - for more\n"
    )
    anomalies = json.loads(output.read_text(encoding="utf-8"))["anomalies"]
    assert anomalies["suspicious"] is (n_forged > 0)
    assert anomalies["set_bits"]["improbable"] == n_forged


def test_help_waits_for_no_numerical_library():
    """They take a second to import; what --help shows needs none of them."""
    code = "import sys, hubbub.decoder.cli; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    slow = {"numpy", "scipy", "pyarrow", "sqlalchemy", "rich", "jinja2", "vl_convert"}
    assert not slow & set(done.stdout.split())


def test_several_outputs_are_written_at_once(metrics_file, tmp_path):
    store = filled_store(tmp_path, plausible_records())
    where = ["--metrics", str(metrics_file), "--store", store, "--candidates", "-"]
    names = [tmp_path / f"result{suffix}" for suffix in (".csv", ".json", ".parquet", ".html")]
    options = [word for name in names for word in ("--output", str(name))]
    given = ["decode", "homepage", *where, *QUICK, *options, "--output", "-"]
    result = CliRunner().invoke(main, given, input="a\nb\n")
    assert result.exit_code == 0
    assert result.stdout.encode() == names[0].read_bytes()
    assert all(name.stat().st_size > 100 for name in names)


def test_linear_algebra_takes_one_thread_whatever_the_cores(metrics_file, monkeypatch):
    """Sums in another order differ in their last digits, which JSON and Parquet show."""
    threads: set[int] = set()

    def look(*_options: object):
        threads.update(library["num_threads"] for library in threadpool_info())
        raise click.exceptions.Exit(0)

    monkeypatch.setattr("hubbub.decoder.type_decoder.StringDecoder.read_candidates", look)
    given = ["decode", "homepage", "--metrics", str(metrics_file), "--candidates", "-"]
    with threadpool_limits(2):
        assert CliRunner().invoke(main, given).exit_code == 0
    assert threads == {1}


_STORED = ["homepage", "--metrics", "metrics.toml"]
_COUNTED = ["--params", "params.csv", "--counts", "counts.csv"]
_FILE = ["--params", "params.csv", "--reports", "reports.parquet"]
_LIST = ["--candidates", "names.txt"]
_MAP = ["--map", "map.csv"]


@pytest.mark.parametrize(
    "options",
    [
        [*_STORED, *_LIST],
        [*_STORED, *_MAP, "--since", "2026-11-01"],
        [*_STORED, "--reports", "reports.parquet", *_LIST],
        [*_FILE, *_LIST],
        [*_FILE, *_MAP],
        [*_COUNTED, *_MAP],
    ],
)
def test_right_combination_gets_as_far_as_the_first_file(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["decode", *options])
    assert result.exit_code == 1
    assert f"{options[2 if options[0] == 'homepage' else 1]}: " in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "strings", "--reports", "1e6", "--candidates", "1e5", "--epsilon-permanent", "4.4",
         "--epsilon-report", "1.1"),
        ("privacy", "{}/none.toml"),
    ],
)  # fmt: skip
def test_outputs_of_other_commands_are_checked_before_the_work(tmp_path, command):
    def complaint(*outputs: str) -> str:
        options = [option for output in outputs for option in ("--output", output)]
        arguments = [argument.format(tmp_path) for argument in command]
        done = CliRunner().invoke(main, [*arguments, *options])
        assert done.exit_code == 2
        assert not list(tmp_path.iterdir())
        return " ".join(done.output.split())

    assert "is given twice" in complaint(f"{tmp_path}/a.csv", f"{tmp_path}/./a.csv")
    assert "nosuchfolder: no such folder" in complaint(f"{tmp_path}/nosuchfolder/a.csv")
