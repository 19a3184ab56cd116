"""Look through every byte of a state folder for reports that should have left it.

A report is to be gone once its consent is withdrawn or the collector has it, also if the app was
killed in between, as soon as the client has run again. The server here knows all reports, since it
received them; a folder is searched for their bits, and for their records in base64.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evaluation.attacks.outcome import Outcome
from factories import make_metric, make_params, make_registry, registry_toml
from http_servers import Answer, ScriptedServer, scripted_server
from hubbub.client import Metric, Telemetry
from service.apps import App, bytes_on_disk, next_line
from service.posting import wait_until
from unit.javascript.node import CLIENT, NODE

_REPORTS = 40
_METRICS = (
    make_metric(params=make_params(k=256)),
    make_metric("once", params=make_params(k=256, f=0.0), one_time=True),
)
_PYTHON = f"""
with open_telemetry(batch_size={_REPORTS}) as telemetry:
    record(telemetry, {_REPORTS - 1})
    telemetry.record("once", "x")
    telemetry.flush(60)
    print(telemetry.status().waiting, flush=True)
    sys.stdin.read()
"""
_NODE = f"""
const telemetry = start({{ batchSize: {_REPORTS} }});
for (let i = 1; i < {_REPORTS}; i++) telemetry.record("homepage", "x");
telemetry.record("once", "x");
process.stdin.resume();
process.stdin.on("end", async () => {{
  await telemetry.setConsent(false);
  process.exit();
}});
await telemetry.flush(60_000);
console.log(telemetry.status().waiting);
"""
_NODE_PRELUDE = f"""
import {{ Telemetry }} from "{CLIENT}/src/index.js";
import {{ fileStorage }} from "{CLIENT}/src/node-storage.js";
const [registry, endpoint, folder] = process.argv.slice(2);
const start = (options) => new Telemetry({{
  registry: JSON.parse(registry), endpoint, storage: fileStorage(folder), log() {{}}, ...options,
}});
"""


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Count reports that are still in some file, in Python and in Node."""
    yield Outcome("reports left 2 s after consent was withdrawn", _after_withdrawal(), 0)
    kills = 3 if quick else 30
    yield Outcome("reports left after they were delivered and the app killed", _after_delivery(), 0)
    yield Outcome(f"the same, after {kills} kills at random and a start", _after_kills(kills), 0)
    times = 2 if quick else 10
    withdrawn = sum(_node_withdrawn() for _ in range(times))
    yield Outcome(f"Node: reports left after consent was withdrawn {times} times", withdrawn, 0)
    yield Outcome(
        f"Node: reports left after {kills} kills at random and a start", _node_killed(kills), 0
    )


def _after_withdrawal() -> int:
    with _folder() as folder, _server(503) as server:
        registry = make_registry(*_METRICS)
        telemetry = Telemetry(registry, server.url, folder / "state", batch_size=_REPORTS)
        for _ in range(_REPORTS):
            telemetry.record("homepage", "x")
        wait_until(lambda: bool(server.received))
        telemetry.set_consent(False)
        wait_until(lambda: telemetry.status().waiting == 0)
        time.sleep(2.0)
        left = _left(server, folder / "state")
        telemetry.close(0)
        return left


def _after_delivery() -> int:
    with _folder() as folder, _server() as server:
        app = App(folder, server.url, *_METRICS)
        with app.started(_PYTHON, stdin=True) as process:
            assert next_line(process) == "0"
            time.sleep(2.0)
            process.kill()
            process.wait()
        return _left(server, app.state)


def _after_kills(kills: int) -> int:
    """Kill an app that delivers at random moments, then let one run to its end."""
    chance = random.Random(28)  # noqa: S311
    with _folder() as folder, _server() as server:
        app = App(folder, server.url, *_METRICS)
        for _ in range(kills):
            with app.started(_PYTHON, stdin=True) as process:
                time.sleep(chance.uniform(0.15, 0.6))
                process.kill()
                process.wait()
        app.run(_PYTHON.replace("sys.stdin.read()", ""))
        return _left(server, app.state)


def _node_withdrawn() -> int:
    with _folder() as folder, _server(503, times=1) as server:
        with started_in_node(_NODE, folder, server.url, *_METRICS) as process:
            wait_until(lambda: bool(server.received))
            assert process.stdin
            process.stdin.close()
            process.wait()
        return _left(server, folder / "state")


def _node_killed(kills: int) -> int:
    chance = random.Random(28)  # noqa: S311
    with _folder() as folder, _server() as server:
        for turn in range(kills + 1):
            with started_in_node(_NODE, folder, server.url, *_METRICS) as process:
                if turn < kills:
                    time.sleep(chance.uniform(0.1, 0.5))
                else:
                    assert next_line(process) == "0"
                process.kill()
                process.wait()
        return _left(server, folder / "state")


@contextmanager
def started_in_node(
    script: str, folder: Path, url: str, *metrics: Metric
) -> Iterator[subprocess.Popen[str]]:
    """Run a script that can `start` a client with its state in a folder; kill it in the end."""
    program = folder / "app.mjs"
    program.write_text(_NODE_PRELUDE + script, encoding="utf-8")
    registry = json.dumps(tomllib.loads(registry_toml(*metrics)), default=str)
    command = [str(NODE), str(program), registry, url, str(folder / "state")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@contextmanager
def _server(status: int = 201, times: int = 1_000_000) -> Iterator[ScriptedServer]:
    with scripted_server(lambda number: Answer(status if number < times else 201)) as server:
        yield server


def _left(server: ScriptedServer, folder: Path) -> int:
    """Return how many of the reports that a server received are in a folder's files."""
    content = b"\n".join(bytes_on_disk(folder))
    assert server.reports
    records = {
        report["cohort"].to_bytes(2, "little") + base64.b64decode(report["bits"])
        for report in server.reports
    }
    return sum(record[2:] in content or base64.b64encode(record) in content for record in records)
