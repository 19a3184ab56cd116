"""The protocols that apps annotate by: clients and doubles satisfy them, for mypy and in fact."""

import pytest

from factories import make_registry
from hubbub.client import (
    AsyncTelemetry,
    AsyncTelemetryProtocol,
    SyncTelemetryProtocol,
    Telemetry,
    TelemetryProtocol,
)
from hubbub.client.testing import AsyncRecordingTelemetry, RecordingTelemetry

NOWHERE = "http://127.0.0.1:9"

# Each line is a claim that mypy checks.
COMMON: list[type[TelemetryProtocol]] = [
    Telemetry, AsyncTelemetry, RecordingTelemetry, AsyncRecordingTelemetry
]  # fmt: skip
SYNC: list[type[SyncTelemetryProtocol]] = [Telemetry, RecordingTelemetry]
ASYNC: list[type[AsyncTelemetryProtocol]] = [AsyncTelemetry, AsyncRecordingTelemetry]


def visit(telemetry: TelemetryProtocol, page: str) -> None:
    """Do what an app does that only records."""
    telemetry.record("homepage", page)


def leave(telemetry: SyncTelemetryProtocol) -> bool:
    with telemetry as entered:
        visit(entered, "news.example.org")
        return entered.flush(5.0)


@pytest.mark.parametrize(
    ("double", "real"),
    [(RecordingTelemetry, Telemetry), (AsyncRecordingTelemetry, AsyncTelemetry)],
    ids=lambda cls: cls.__name__,
)
def test_double_has_all_that_the_client_has(double, real):
    def names(cls: type) -> set[str]:
        return {name for name in dir(cls) if not name.startswith("_")}

    assert names(double) - names(real) == {"values"}
    assert names(real) <= names(double)


def test_app_that_asks_for_the_protocol_takes_client_and_double(tmp_path):
    registry = make_registry()
    double = RecordingTelemetry(registry)
    assert leave(double)
    assert double.calls == [("homepage", "news.example.org")]
    client = Telemetry(registry, NOWHERE, tmp_path, consent=False)
    assert not leave(client)
    assert client.status().dropped == {"disabled": 1}
