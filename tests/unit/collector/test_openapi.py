"""openapi.json is valid, and its bounds are the code's; test_contract holds a collector to it."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from factories import make_metric, make_params, make_report
from hubbub.client import Batch, Registry, batch_to_json
from hubbub.collector import Settings
from hubbub.protocol import LONGEST_SLICE, MOST_BITS, MOST_COHORTS, MOST_VERSION, NAME_PATTERN

DOCUMENT = json.loads(files("hubbub.collector").joinpath("openapi.json").read_bytes())
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "metrics.toml"


def test_document_is_valid_openapi():
    schemathesis.openapi.from_dict(DOCUMENT).validate()


def test_everything_that_is_there_is_referred_to():
    references = set(_values_of("$ref", DOCUMENT))
    assert references == {
        f"#/components/{part}/{name}"
        for part in ("schemas", "responses", "headers")
        for name in DOCUMENT["components"][part]
    }


def test_operations_have_names_of_their_own():
    names = _values_of("operationId", DOCUMENT)
    assert len(names) == len(set(names)) == 9


def test_bounds_are_those_of_the_code():
    settings = Settings(metrics=Path("metrics.toml"))
    post = DOCUMENT["paths"]["/v1/reports"]["post"]
    schemas = DOCUMENT["components"]["schemas"]
    report = schemas["Report"]["properties"]
    assert post["parameters"][0]["schema"]["enum"] == ["identity", "gzip"]
    assert settings.max_body_bytes == 2**20
    assert "1 MiB unless set" in post["requestBody"]["description"]
    most = schemas["Batch"]["properties"]["reports"]["description"]
    assert f"{settings.max_reports:,} unless set" in most
    assert report["metric"]["pattern"] == f"^{NAME_PATTERN}$"
    assert report["version"]["maximum"] == MOST_VERSION
    assert report["cohort"]["maximum"] == MOST_COHORTS - 1
    assert report["bits"]["maxLength"] == (MOST_BITS // 8 + 2) // 3 * 4
    assert report["slice"]["maxLength"] == LONGEST_SLICE


@pytest.mark.parametrize("k", [8, 16, 24, 64, MOST_BITS])
@pytest.mark.parametrize("bits", [0, -1])
def test_clients_batches_fit_the_document(k, bits):
    metrics = (
        make_metric(params=make_params(k=k)),
        *Registry.parse(EXAMPLE.read_text()).values(),
    )
    reports = [make_report(it, bits=bits % 2**it.params.k) for it in metrics]
    batch = json.loads(batch_to_json(Batch(tuple(reports))))
    schema = {"$ref": "#/components/schemas/Batch", "components": DOCUMENT["components"]}
    jsonschema_rs.validator_for(schema).validate(batch)
    batch["reports"][0]["more"] = 1
    assert not jsonschema_rs.validator_for(schema).is_valid(batch)


def _values_of(name: str, part: object) -> list[Any]:
    if isinstance(part, dict):
        own = [part[name]] if name in part else []
        return own + [value for item in part.values() for value in _values_of(name, item)]
    if isinstance(part, list):
        return [value for item in part for value in _values_of(name, item)]
    return []
