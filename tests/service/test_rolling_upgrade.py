"""A collector's registry that is behind the apps': nothing is lost, and everything counts once."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from factories import make_metric, make_params, make_registry, make_report, registry_toml
from http_servers import Answer, scripted_server
from hubbub.client import Batch, Telemetry
from hubbub.protocol import registry_json
from hubbub.simulations import Collector
from programs import forked_collector
from service.posting import make_batch, post, stored_count, wait_until
from unit.javascript.node import CLIENT, NODE

HOMEPAGE, THEME = make_metric(), make_metric("theme", params=make_params(m=1))
APP = make_registry(HOMEPAGE, THEME)
UNKNOWN = json.dumps({"retry": True, "unknown": [{"metric": "theme", "version": 1}]}).encode()


@pytest.fixture
def metrics(tmp_path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(HOMEPAGE), encoding="utf-8")
    return path


def learn(collector: Collector, metrics: Path) -> None:
    metrics.write_text(registry_toml(HOMEPAGE, THEME), encoding="utf-8")
    collector.process.send_signal(signal.SIGHUP)
    probe = make_batch(1, THEME)._replace(batch_id="0" * 32)
    wait_until(lambda: post(collector.url, probe).status in {200, 201})


def test_reports_of_new_metrics_wait_and_others_do_not(metrics, database, tmp_path):
    with forked_collector(metrics, database) as collector:
        state = tmp_path / "state"
        with Telemetry(APP, collector.url, state, batch_seconds=0.1) as telemetry:
            for number in range(20):
                telemetry.record("homepage", f"{number}")
                telemetry.record("theme", f"{number}")
            assert not telemetry.flush(20)
            assert (telemetry.status().delivered, telemetry.status().dropped) == (20, {})
            assert telemetry.status().waiting == 20
            assert (stored_count(database, HOMEPAGE), stored_count(database, THEME)) == (20, 0)
            learn(collector, metrics)
            assert telemetry.flush(60)
            assert (telemetry.status().delivered, telemetry.status().dropped) == (40, {})
    assert (stored_count(database, HOMEPAGE), stored_count(database, THEME)) == (20, 20 + 1)


def test_metric_that_only_the_store_knows_is_to_be_sent_again_and_a_wrong_report_is_not(
    metrics, database, tmp_path
):
    """A collector that is started behind the others of its store refuses nothing for good."""
    newer = tmp_path / "newer.toml"
    newer.write_text(registry_toml(HOMEPAGE, THEME), encoding="utf-8")
    with forked_collector(newer, database):
        pass
    wrong = make_report(HOMEPAGE)._replace(cohort=HOMEPAGE.params.m)
    mixed = Batch((*make_batch(2, THEME).reports, make_report(HOMEPAGE), wrong))
    with forked_collector(metrics, database) as behind:
        answer = post(behind.url, mixed)
        assert (answer.status, answer.json["retry"]) == (422, True)
        assert answer.json["unknown"] == [{"metric": "theme", "version": 1}]
        assert [error["report"] for error in answer.json["errors"]] == [3]
    assert (stored_count(database, HOMEPAGE), stored_count(database, THEME)) == (0, 0)


def test_batch_whose_answer_was_lost_is_never_divided(tmp_path):
    answers = {0: Answer(0), 1: Answer(422, UNKNOWN)}
    with scripted_server(lambda number: answers.get(number, Answer())) as server:
        with Telemetry(APP, server.url, tmp_path / "state", batch_seconds=0.05) as telemetry:
            telemetry.record("homepage", "a")
            telemetry.record("theme", "a")
            wait_until(lambda: len(server.received) > 2)
        batches = [request.batch for request in server.received]
        assert len({batch["batch_id"] for batch in batches}) == 1
        assert {len(batch["reports"]) for batch in batches} == {2}


_IN_NODE = """
import { Telemetry } from "./src/index.js";
import { memoryStorage } from "./testing/collecting.js";
const options = JSON.parse(process.argv[2]);
const telemetry = new Telemetry({ ...options, storage: memoryStorage(), firstRetryMillis: 5 });
for (let i = 0; i < 20; i++) {
  telemetry.record("homepage", `${i}`);
  telemetry.record("theme", `${i}`);
}
await telemetry.flush(20_000);
const first = telemetry.status();
console.log(JSON.stringify(first));
process.stdin.once("data", async () => {
  while (telemetry.status().waiting) await telemetry.flush(1_000);
  console.log(JSON.stringify(telemetry.status()));
  process.exit();
});
"""


def test_reports_of_javascript_wait_for_a_collector_that_learns(metrics, database, tmp_path):
    app = tmp_path / "app.toml"
    app.write_text(registry_toml(HOMEPAGE, THEME), encoding="utf-8")
    with forked_collector(metrics, database) as collector:
        options = {"registry": json.loads(registry_json(app)), "endpoint": collector.url}
        program = CLIENT / f"rolling-{tmp_path.name}.mjs"
        try:
            program.write_text(_IN_NODE, encoding="utf-8")
            command = [str(NODE), str(program), json.dumps(options)]
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as node:
                assert node.stdin is not None
                assert node.stdout is not None
                first = json.loads(node.stdout.readline())
                assert (first["delivered"], first["waiting"], first["dropped"]) == (20, 20, {})
                assert stored_count(database, HOMEPAGE) == 20
                learn(collector, metrics)
                node.stdin.write("on\n")
                node.stdin.flush()
                last = json.loads(node.stdout.readline())
                assert (last["delivered"], last["waiting"], last["dropped"]) == (40, 0, {})
        finally:
            program.unlink()
    assert (stored_count(database, HOMEPAGE), stored_count(database, THEME)) == (20, 20 + 1)
