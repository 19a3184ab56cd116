"""Which form batches are sent in: compact, or JSON where that isn't understood; none is lost."""

import json
import random
from typing import Any

import pytest

from factories import make_metric, make_params, make_registry, make_report
from http_servers import Answer, ScriptedServer, scripted_server
from hubbub.client import Batch, Telemetry, batch_to_json
from hubbub.client.transport import HttpSender, Outcome
from hubbub.protocol import MEDIA_TYPE

JSON = "application/json"
HOMEPAGE, SEARCH = make_metric(), make_metric("search", params=make_params(k=8, m=1))


def types_of(server: ScriptedServer) -> list[str]:
    return [request.headers["Content-Type"] for request in server.received]


def many_reports(count: int, metrics: tuple[Any, ...] = (HOMEPAGE, SEARCH)) -> Batch:
    """Return a batch of different reports, in ascending order as those of an outbox are."""
    chance = random.Random(count)  # noqa: S311
    reports = [
        make_report(metric, cohort=chance.randrange(metric.params.m), bits=chance.getrandbits(8))
        for metric in metrics
        for _ in range(count)
    ]
    order = sorted(
        reports, key=lambda r: (r.metric, r.version, r.cohort.to_bytes(2, "little"), r.bits)
    )
    return Batch(tuple(order))


def reports_of(batch: Batch) -> list[dict[str, Any]]:
    reports: list[dict[str, Any]] = json.loads(batch_to_json(batch))["reports"]
    return reports


@pytest.mark.parametrize("status", [400, 403, 406, 415])
def test_servers_without_the_compact_form_get_json_at_once(tmp_path, status):
    """As an older collector, or a firewall before one, would answer."""
    answers = [Answer(status)]
    with (
        scripted_server(lambda n: answers[n] if n < len(answers) else Answer()) as server,
        Telemetry(make_registry(), server.url, tmp_path) as telemetry,
    ):
        for number in (1, 2, 3):
            telemetry.record("homepage", "x")
            assert telemetry.flush(30)
            assert telemetry.status().delivered == number
        status_now = telemetry.status()
    assert status_now.dropped == {}
    assert status_now.last_error is None
    assert types_of(server) == [MEDIA_TYPE, JSON, MEDIA_TYPE, MEDIA_TYPE]
    first, second = server.received[:2]
    assert first.batch == second.batch


@pytest.mark.parametrize("status", [400, 403, 415])
def test_batch_that_json_does_not_help_is_dropped_for_what_json_was_answered(tmp_path, status):
    with (
        scripted_server(lambda _: Answer(status)) as server,
        Telemetry(make_registry(), server.url, tmp_path) as telemetry,
    ):
        telemetry.record("homepage", "x")
        assert telemetry.flush(30)
        assert sum(telemetry.status().dropped.values()) == 1
    assert types_of(server) == [MEDIA_TYPE, JSON]


@pytest.mark.parametrize("status", [401, 404, 405, 413, 422, 408, 429, 500, 503])
def test_other_answers_do_not_concern_the_form(status):
    with scripted_server(lambda _: Answer(status)) as server:
        sender = HttpSender(server.url)
        for _ in range(2):
            assert sender.send(many_reports(1)).outcome is not Outcome.DELIVERED
    assert types_of(server) == [MEDIA_TYPE, MEDIA_TYPE]


def test_named_reports_are_named_as_the_batch_on_disk_counts_them():
    batch = many_reports(25)
    named = [0, 7, 31, 49, 50, 1000]  # two of them aren't in the batch
    problem = json.dumps({"errors": [{"report": index, "detail": "no"} for index in named]})
    with scripted_server(lambda _: Answer(422, problem.encode())) as server:
        answer = HttpSender(server.url).send(batch)
    (request,) = server.received
    received, on_disk = request.batch["reports"], reports_of(batch)
    assert received == on_disk
    assert list(answer.refused) == named
