"""The OpenAPI document: valid, and in keeping with the settings and the registry."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from factories import make_metric, make_params, make_registry, make_report
from hubbub.client import Batch, Metric, Registry, batch_to_json
from hubbub.collector.config.settings import IngestKey, Settings
from hubbub.collector.ingest.openapi import openapi_document

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "metrics.toml"
KEYS = {"app": IngestKey(sha256="0" * 64)}


def make_document(registry: Registry | None = None, **settings: Any) -> dict[str, Any]:
    registry = registry or make_registry()
    return openapi_document(Settings(metrics=Path("metrics.toml"), **settings), registry)


def fits(document: dict[str, Any], batch: object) -> bool:
    """Return whether a batch in JSON is one that the document allows."""
    schema = {"$ref": "#/components/schemas/Batch", "components": document["components"]}
    return jsonschema_rs.validator_for(schema).is_valid(batch)


def as_json(*metrics: Metric, **report: int) -> Any:
    return json.loads(batch_to_json(Batch(tuple(make_report(m, **report) for m in metrics))))


@pytest.mark.parametrize("settings", [{}, {"ingest_keys": KEYS}])
def test_document_is_valid_openapi(settings):
    registry = Registry.parse(EXAMPLE.read_text())
    document = make_document(registry, **settings)
    schemathesis.openapi.from_dict(document).validate()
    assert document["openapi"] == "3.1.0"


def test_everything_that_is_referred_to_is_there():
    document = make_document(ingest_keys=KEYS)
    schemas = document["components"]["schemas"]
    references = set(_values_of("$ref", document))
    assert references == {f"#/components/schemas/{name}" for name in schemas}


def test_operations_have_names_of_their_own():
    names = _values_of("operationId", make_document())
    assert len(names) == len(set(names)) == 7


@pytest.mark.parametrize("k", [8, 16, 24, 64, 128])
@pytest.mark.parametrize("bits", [0, 1, 0xFE, -1])
def test_what_a_client_sends_fits_the_document(k, bits):
    metric = make_metric(params=make_params(k=k))
    document = make_document(make_registry(metric))
    assert fits(document, as_json(metric, cohort=63, bits=bits % 2**k))


def test_reports_of_all_kinds_of_metrics_fit_the_document():
    registry = Registry.parse(EXAMPLE.read_text())
    batch = as_json(*registry.values())
    assert fits(make_document(registry), batch)
    assert {metric.type.name for metric in registry.values()} >= {"string", "enum", "boolean"}


@pytest.mark.parametrize(
    "change",
    [
        {"metric": "search"},
        {"version": 2},
        {"cohort": 64},
        {"cohort": -1},
        {"bits": "AAAAAAAAAAAAAAAAAAAA"},
        {"bits": "AAAAAAAAAAAAAAAAAAAAAAAAAA=="},
        {"bits": "AAAAAAAAAAAAAAAAAAAAA-=="},
        {"bits": None},
        {"more": 1},
    ],
)
def test_report_that_would_be_refused_does_not_fit_the_document(change):
    batch = as_json(make_metric())
    assert fits(make_document(), batch)
    batch["reports"][0].update(change)
    assert not fits(make_document(), batch)


def test_limits_are_those_of_the_settings():
    document = make_document(max_reports=2, max_body_bytes=777)
    metric = make_metric()
    assert fits(document, as_json(metric, metric))
    assert not fits(document, as_json(metric, metric, metric))
    body = document["paths"]["/v1/reports"]["post"]["requestBody"]
    assert "777 bytes" in body["description"]


def test_key_is_asked_for_where_the_collector_asks_for_it():
    def security(**settings: Any) -> Any:
        document = make_document(**settings)
        post = document["paths"]["/v1/reports"]["post"]
        assert ("401" in post["responses"]) == ("ingest_keys" in settings)
        assert ("securitySchemes" in document["components"]) == ("ingest_keys" in settings)
        return post.get("security")

    assert security() is None
    assert security(ingest_keys=KEYS) == [{"ingestKey": []}]
    assert security(ingest_keys=KEYS, anonymous=True) == [{}, {"ingestKey": []}]


def test_application_and_questions_are_named_and_their_owners_are_not():
    text = json.dumps(make_document())
    assert "com.example.browser" in text
    assert "What the tests ask" in text
    assert "privacy@example.com" not in text


def _values_of(name: str, part: object) -> list[Any]:
    """Return the values of all members of this name, at any depth."""
    if isinstance(part, dict):
        own = [part[name]] if name in part else []
        return own + [value for item in part.values() for value in _values_of(name, item)]
    if isinstance(part, list):
        return [value for item in part for value in _values_of(name, item)]
    return []
