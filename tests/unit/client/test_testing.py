"""The double for the tests of apps."""

from __future__ import annotations

import pytest

from factories import make_metric, make_registry
from hubbub.client import EncodingError, UnknownCategoryError, UnknownMetricError
from hubbub.client.kinds import EnumKind
from hubbub.client.testing import RecordingTelemetry

REGISTRY = make_registry(make_metric(), make_metric("theme", kind=EnumKind(("light", "dark"))))


def test_calls_are_kept_in_order() -> None:
    telemetry = RecordingTelemetry(REGISTRY)
    telemetry.record("homepage", "a")
    telemetry.record("theme", "dark")
    telemetry.record("homepage", "b")
    assert telemetry.calls == [("homepage", "a"), ("theme", "dark"), ("homepage", "b")]
    assert telemetry.values("homepage") == ["a", "b"]
    assert telemetry.flush()
    telemetry.close()
    assert telemetry.status().recorded == 3


def test_mistakes_that_the_client_would_drop_fail_the_test() -> None:
    telemetry = RecordingTelemetry(REGISTRY)
    with pytest.raises(UnknownMetricError):
        telemetry.record("hompage", "a")
    with pytest.raises(UnknownCategoryError):
        telemetry.record("theme", "purple")
    with pytest.raises(EncodingError):
        telemetry.record("homepage", 3)
    assert telemetry.calls == []
