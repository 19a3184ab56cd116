"""Let two apps use one state directory, by mistake, and see what one's collector gets of the other.

Both ask a metric of the same name and version. The first app's collector is away, so its reports
wait on disk.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

from evaluation.attacks.outcome import Outcome
from factories import make_metric, make_params, make_registry
from http_servers import Answer, scripted_server
from hubbub.client import HubbubError, Metric, Telemetry

_REPORTS = 5


def attack(*, quick: bool) -> Iterator[Outcome]:  # noqa: ARG001 (it is quick)
    """Count what crosses from one application, or one collector, to another."""
    yield Outcome(
        "reports of an app that reach another app's collector",
        _crossing("com.example.browser", "com.example.editor"),
        0,
    )
    yield Outcome(
        "reports of an app that reach a collector they weren't made for",
        _crossing("com.example.browser", "com.example.browser"),
        0,
    )
    yield Outcome("answers of an app that are reported as another's", _borrowed_answers(), 0)


def _crossing(one: str, other: str) -> int:
    """Return how many reports of one app another app's collector gets; the other makes none."""
    with (
        tempfile.TemporaryDirectory() as state,
        scripted_server(lambda _: Answer(503)) as away,
        scripted_server() as there,
    ):
        with Telemetry(make_registry(_metric(one)), away.url, state) as telemetry:
            for _ in range(_REPORTS):
                telemetry.record("homepage", "x")
        with contextlib.suppress(HubbubError):
            second = Telemetry(make_registry(_metric(other)), there.url, state)
            second.flush(20)
            second.close()
        return len(there.reports)


def _borrowed_answers() -> int:
    """Let the second app record another value where there is room for one: is the first's sent?"""
    answers = 0
    params = make_params(f=1e-9, p=0.0, q=1.0 - 1e-9)
    with tempfile.TemporaryDirectory() as state, scripted_server() as server:
        for application, value in (("com.example.browser", "a"), ("com.example.editor", "b")):
            metric = _metric(application)._replace(max_values=1, params=params)
            with (
                contextlib.suppress(HubbubError),
                Telemetry(make_registry(metric), server.url, state) as telemetry,
            ):
                telemetry.record("homepage", value)
                telemetry.flush(20)
                answers += telemetry.status().stale
    return answers


def _metric(application: str) -> Metric:
    return make_metric(application=application)
