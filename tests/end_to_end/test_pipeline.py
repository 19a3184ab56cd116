"""From an app's call to a table of estimates, through the programs that people run."""

import asyncio
import csv
import datetime as dt
import io
import json
import os
import re
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import programs
from factories import make_metric, make_params, registry_toml
from hubbub.client import Metric, Registry
from hubbub.decoder.cli import main
from hubbub.simulations import (
    Collector,
    SimulatedClients,
    UploadError,
    report_through_clients,
    upload_reports,
)
from programs import forked_collector

SECONDS = 120
LOOSE = make_params(k=32, h=2, m=8, f=0.1, p=0.1, q=0.9)
FLEET = {
    "example.com": 2000,
    "example.org": 1600,
    "日本語.example": 1200,
    "007": 1000,
    'a "quoted", string': 800,
    " x ": 700,
    "": 600,
    "\U0001f984": 500,
}
CLIENTS = ["example.com"] * 20 + [""] * 10
ABSENT = [f"absent {i}" for i in range(12)]
CANDIDATES = [*FLEET, *ABSENT]
TOTAL = sum(FLEET.values()) + len(CLIENTS)
ESCAPE = "\x1b"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A collector that runs, has stored all reports, and may go on running."""

    metrics: Path
    store: str
    candidates: Path
    collector: Collector
    since: dt.date

    def decode_command(self, *options: str) -> list[str]:
        where = ["--metrics", str(self.metrics), "--store", self.store]
        return ["decode", "homepage", *where, "--candidates", str(self.candidates), *options]


def program(name: str, *arguments: str) -> list[str]:
    """Return a command line of one of the project's installed programs."""
    return [str(Path(sysconfig.get_path("scripts"), name)), *arguments]


def decode(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return programs.run("hubbub.decoder", *arguments, given=given, timeout=SECONDS)


def decode_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the decoder's command in this process, where its libraries are imported already."""
    done = CliRunner().invoke(main, arguments)
    assert isinstance(done.exception, SystemExit | None), done.exception
    return subprocess.CompletedProcess(
        arguments, done.exit_code, done.stdout_bytes.decode(), done.stderr_bytes.decode()
    )


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


def days(n: int) -> dt.timedelta:
    return dt.timedelta(days=n)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory) -> Iterator[Deployment]:
    """Serve a collector, and let 30 real clients and 8,400 simulated ones report to it."""
    folder = tmp_path_factory.mktemp("pipeline")
    metrics, candidates = folder / "metrics.toml", folder / "candidates.txt"
    metric = make_metric(params=LOOSE)
    metrics.write_text(registry_toml(metric), encoding="utf-8")
    candidates.write_text("".join(f"{string}\n" for string in CANDIDATES), encoding="utf-8")
    since = today()
    with forked_collector(metrics, folder / "hubbub.db") as collector:
        report_through_clients(
            Registry.load(metrics), "homepage", CLIENTS, collector.url, lambda _done, _total: None
        )
        upload(metric, collector.url)
        store = f"sqlite:///{folder}/hubbub.db"
        yield Deployment(metrics, store, candidates, collector, since)


def upload(metric: Metric, url: str) -> None:
    held = np.repeat(np.arange(len(FLEET)), list(FLEET.values()))
    cohorts, bits = SimulatedClients(tuple(FLEET), metric.params, np.random.default_rng(1)).report(
        held
    )
    asyncio.run(upload_reports(metric, cohorts, bits, url, lambda _done, _total: None))


def assert_refused(done: subprocess.CompletedProcess[str], reason: str) -> None:
    """The reason, and only that, is on standard error."""
    assert done.returncode != 0
    assert done.stdout == ""
    assert re.search(reason, done.stderr), done.stderr
    assert "Traceback" not in done.stderr


def test_everything_reported_is_found_with_its_count_while_the_collector_runs(deployment):
    """Errors below 4.9 standard errors of each of 20 counts: P(false alarm) < 2e-5."""
    done = decode_here(*deployment.decode_command("--output", "-", "--correction", "bonferroni"))
    assert done.returncode == 0, done.stderr
    assert deployment.collector.process.poll() is None
    truth = Counter(FLEET) + Counter(CLIENTS)
    rows = rows_of(done.stdout)
    assert {row["string"] for row in rows if row["detected"] == "true"} == set(FLEET)
    for row in rows:
        error = float(row["count"]) - truth[row["string"]]
        assert abs(error) < 4.9 * float(row["std_error"])
        assert float(row["std_error"]) < 150


def test_csv_json_and_standard_output_agree(deployment, tmp_path):
    for name in ("result.csv", "result.json"):
        done = decode_here(*deployment.decode_command("--output", str(tmp_path / name)))
        assert done.returncode == 0, done.stderr
    piped = decode(*deployment.decode_command("--output", "-"))
    assert piped.stdout.encode() == (tmp_path / "result.csv").read_bytes()
    assert piped.stderr == ""
    document = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert document["summary"]["reports"] == TOTAL
    assert document["summary"]["candidates"] == len(CANDIDATES)
    for fields, row in zip(document["rows"], rows_of(piped.stdout), strict=True):
        assert fields["string"] == row["string"]
        assert fields["count"] == pytest.approx(float(row["count"]))


def test_candidates_come_from_standard_input_too(deployment):
    """With Windows line ends, a byte order mark and a line that stands twice."""
    text = "\ufeff" + "".join(f"{string}\r\n" for string in [*CANDIDATES, "007"])
    done = decode(*deployment.decode_command("--candidates", "-", "--output", "-"), given=text)
    assert [row["string"] for row in rows_of(done.stdout)] == CANDIDATES
    assert done.stderr == "note: 1 repeated candidates left out\n"


def test_days_are_included_at_both_ends(deployment, tmp_path):
    """The reports are of the day on which the test started, or of the next if midnight passed."""
    path = tmp_path / "result.json"
    options = ("--since", f"{deployment.since}", "--until", f"{today()}", "--output", str(path))
    done = decode_here(*deployment.decode_command(*options))
    assert done.returncode == 0, done.stderr
    assert json.loads(path.read_text(encoding="utf-8"))["summary"]["reports"] == TOTAL


@pytest.mark.parametrize("end", ["--until", "--since"])
def test_days_without_reports_are_an_error(deployment, end):
    day = deployment.since - days(1) if end == "--until" else today() + days(1)
    done = decode_here(*deployment.decode_command(end, f"{day}"))
    assert_refused(done, rf"no reports of homepage version 1 from .*{day}.*in the store: \[1\]")


def test_store_that_is_no_database_is_an_error(deployment, tmp_path):
    (tmp_path / "notes.db").write_text("Not a database at all.\n" * 100, encoding="utf-8")
    done = decode_here(*deployment.decode_command("--store", f"sqlite:///{tmp_path}/notes.db"))
    assert_refused(done, "notes.db.*file is not a database")


def test_full_disk_behind_standard_output_is_an_error(deployment):
    command = program("hubbub-decoder", *deployment.decode_command("--output", "-"))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, timeout=SECONDS, check=False
        )
    assert done.returncode != 0
    assert done.stderr == b"Error: standard output: No space left on device\n"


def test_refused_upload_is_an_error_that_says_why(deployment):
    with pytest.raises(UploadError, match=r"collector: 422 .*startpage"):
        upload(make_metric("startpage", params=LOOSE), deployment.collector.url)


def test_upload_without_a_server_is_an_error():
    with pytest.raises(UploadError, match=r"127\.0\.0\.1:9"):
        upload(make_metric(params=LOOSE), "http://127.0.0.1:9")


def run_on_terminal(command: list[str]) -> tuple[int, str]:
    """Run a program whose standard error is a terminal; return its exit code and what it showed."""
    terminal, side = os.openpty()
    try:
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=side, env=environment
        ) as process:
            os.close(side)
            shown = bytearray()
            with suppress(OSError):  # how a terminal says that the program closed it
                while chunk := os.read(terminal, 65_536):
                    shown += chunk
            return process.wait(SECONDS), shown.decode()
    finally:
        os.close(terminal)


def test_terminal_gets_a_progress_bar(deployment):
    code, shown = run_on_terminal(program("hubbub-decoder", *deployment.decode_command()))
    assert code == 0
    assert "counting reports" in shown
    assert f"{TOTAL}/{TOTAL}" in shown
    assert ESCAPE in shown


@pytest.mark.long
def test_demonstration_scores_itself_draws_a_picture_and_speaks_plainly(tmp_path):
    """A false name has a chance of 0.05 at most, so one is allowed; two have 0.0013.

    Real clients draw from the system's generator, so the seed doesn't repeat this.
    """
    folder = tmp_path / "new"
    options = ("--reports", "20000", "--clients", "50", "--seed", "1", "--output", str(folder))
    done = programs.run("hubbub.simulations", "demo", *options, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert (result["reports"], result["candidates"], result["seed"]) == (20_000, 91_910, 1)
    assert result["true_positives"] >= 0
    assert result["false_positives"] <= 1
    assert 0 <= result["total_variation"] < 0.2
    assert 0.93 < result["interval_coverage"] < 0.97
    assert result["seconds"] > 0
    assert result["open_found"] >= result["open_false"] >= 0
    assert result["open_epsilon"] == pytest.approx(3.9992, abs=1e-4)
    unlisted = json.loads((folder / "open.json").read_text(encoding="utf-8"))
    assert len(unlisted["rows"]) == result["open_found"]
    assert unlisted["search"]["listed"] == 0
    assert [step["bytes"] for step in unlisted["search"]["steps"]] == [4, 7]
    picture = (folder / "estimates.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(picture) > 10_000  # one of a single colour has a tenth of that
    assert "Detected names" in done.stdout
    assert "And this is what is found without any list of names" in done.stdout
    assert "seed 1" in done.stdout
    for text in (done.stdout, done.stderr):
        assert ESCAPE not in text
        assert "simulated clients report" not in text
        assert "counting reports" not in text
