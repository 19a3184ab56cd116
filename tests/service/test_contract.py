"""The collector answers as its OpenAPI document says, to requests that are made from the document.

The document is the same for all collectors; here the reports in it are narrowed to those of the
metrics of this one.
Schemathesis makes valid and invalid requests for every operation and compares each answer with the
document. HUBBUB_CONTRACT_EXAMPLES sets how many it draws at random for an operation.
"""

import copy
import gzip
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
import schemathesis
from schemathesis import Case, HookContext
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import Interaction, ScenarioRecorder
from schemathesis.transport import SerializationContext

from factories import make_metric, make_params, registry_toml
from hubbub.client import Batch, Report
from hubbub.collector import generate_secret
from hubbub.protocol import LONGEST_NAME, MOST_BYTES_OF_BITS, batch_to_compact, is_slice
from hubbub.simulations import Collector
from programs import forked_collector
from service.posting import COMPACT, JSON, send, stored_count

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

EXAMPLES = int(os.environ.get("HUBBUB_CONTRACT_EXAMPLES", "100"))
METRICS = (
    make_metric("homepage"),
    make_metric("search", version=7, params=make_params(k=64, m=8)),  # base64 ends on "="
    make_metric("theme", version=2, params=make_params(k=24, m=1)),  # and without
)
_MOST = 6
DESCRIBED = {200, 201, 400, 413, 415, 422}  # and others that take a fault or a crowd
_ALL_METHODS = {"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}
_ENCODERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
}
_ENCODINGS = ("identity", *_ENCODERS)
_KEY, _KEY_HASH = generate_secret("ingest")


@dataclass
class Outcome:
    """What came of all requests that were made from a document."""

    faults: list[str] = field(default_factory=list)
    answers: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    accepted: Counter[tuple[str, str]] = field(default_factory=Counter)
    reports: int = 0
    checks: Counter[str] = field(default_factory=Counter)

    def statuses(self, method: str, path: str) -> set[int]:
        return {status for m, p, status in self.answers if (m, p) == (method, path)}

    def add(self, scenario: ScenarioRecorder) -> None:
        for case, nodes in scenario.checks.items():
            self.checks.update(node.name for node in nodes)
            failed = [node for node in nodes if node.failure_info is not None]
            for node in failed:
                assert node.failure_info is not None
                failure, sample = node.failure_info.failure, node.failure_info.code_sample
                answer = scenario.interactions[case].response
                said = answer.content[:500] if answer else b"nothing"
                self.faults.append(
                    f"{node.name}: {failure.title}: {failure.message}\n{sample}\n{said!r}"
                )
        for interaction in scenario.interactions.values():
            self._add(interaction)

    def _add(self, interaction: Interaction) -> None:
        request, response = interaction.request, interaction.response
        if response is None:
            self.faults.append(f"no answer to {request.method} {request.uri}")
            return
        path = urlsplit(request.uri).path
        self.answers[request.method, path, response.status_code] += 1
        if response.status_code == 201:
            encoding = request.headers.get("Content-Encoding", ["identity"])[0]
            self.accepted[request.headers["Content-Type"][0], encoding] += 1
            self.reports += response.json()["accepted"]


@schemathesis.serializer(JSON)
def _as_json(context: SerializationContext, value: Any) -> bytes:
    if isinstance(value, bytes):  # is to be sent as it is, being no JSON at all
        return _encoded(context, value)
    return _encoded(context, json.dumps(_with_bits(value, str)).encode())


@schemathesis.serializer(COMPACT)
def _as_compact(context: SerializationContext, value: Any) -> bytes:
    if isinstance(value, bytes):
        return _encoded(context, value)
    try:
        members = _with_bits(value, _bytes)
        reports = tuple(_fitting(Report(**report)) for report in members["reports"])
        body = batch_to_compact(Batch(reports)._replace(batch_id=members["batch_id"]))
        if len(members) > 2 or not re.fullmatch("[0-9a-f]{32}", members["batch_id"]):
            raise ValueError(members)
    except (AttributeError, KeyError, TypeError, ValueError):
        body = b"\x00"  # there is no way to say it in this form
    return _encoded(context, body)


def _fitting(report: Report) -> Report:
    """Return a report if the form has a place for it (ValueError, or TypeError)."""
    numbers = ((report.version, 2**32), (report.cohort, 2**16))
    if (
        not all(type(number) is int and 0 <= number < most for number, most in numbers)
        or not 1 <= len(report.metric.encode("ascii")) <= LONGEST_NAME
        or not is_slice(report.slice)
        or not 1 <= len(report.bits) <= MOST_BYTES_OF_BITS
    ):
        raise ValueError(report)
    return report


def _with_bits(value: Any, bits: Callable[[str], Any]) -> Any:
    """Return generated JSON with its bits as they go into a format, and integers as integers.

    To JSON Schema 8.0 is an integer; a report's numbers are written without a fraction.
    """
    if isinstance(value, dict):
        return {
            name: bits(item) if name == "bits" and isinstance(item, str) else _with_bits(item, bits)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_with_bits(item, bits) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _bytes(text: str) -> bytes:
    return bytes(ord(character) % 256 for character in text)


def _encoded(context: SerializationContext, body: bytes) -> bytes:
    encode = _ENCODERS.get(str(_encoding(context.case)))
    return encode(body) if encode else body


def _encoding(case: Case[Any]) -> str | None:
    headers: Mapping[str, Any] = case.headers or {}
    return headers.get("Content-Encoding")


def filter_case(_context: HookContext, case: Case[Any]) -> bool:
    """Leave out spellings of encodings that HTTP allows and the document needn't list."""
    given = _encoding(case)
    return given is None or given in _ENCODINGS or given.strip().lower() not in {"", *_ENCODINGS}


def varying() -> Callable[[HookContext, Case[Any]], Case[Any]]:
    """Return a hook that gives batches ids of their own and all encodings in turn.

    Chance would draw the same few ids and leave encodings out.
    """
    numbers, encodings = itertools.count(), itertools.cycle(_ENCODINGS)

    def map_case(_context: HookContext, case: Case[Any]) -> Case[Any]:
        body: Any = case.body
        headers: Any = case.headers
        body["batch_id"] = f"{next(numbers):032x}"
        headers["Content-Encoding"] = next(encodings)
        return case

    return map_case


@pytest.fixture
def registry(tmp_path) -> Path:
    path = tmp_path / "several.toml"
    path.write_text(registry_toml(*METRICS), encoding="utf-8")
    return path


@pytest.fixture
def open_to_all(registry, database) -> Iterator[Collector]:
    with forked_collector(registry, database, ["--max-reports", str(_MOST)]) as collector:
        yield collector


@pytest.fixture
def guarded(registry, database, tmp_path) -> Iterator[Collector]:
    config = tmp_path / "collector.toml"
    config.write_text(
        f'max_reports = {_MOST}\n[ingest_keys.app]\nsha256 = "{_KEY_HASH}"\n'
        "reports_per_second = 1e9\nburst = 1_000_000_000\n"
    )
    with forked_collector(registry, database, ["--config", str(config)]) as collector:
        yield collector


@pytest.mark.long
def test_every_answer_is_one_that_the_document_describes(open_to_all):
    outcome = explore(open_to_all)
    assert not outcome.faults, "\n\n".join(outcome.faults)
    assert outcome.statuses("POST", "/v1/reports") == DESCRIBED
    for path in ("/livez", "/readyz", "/openapi.json"):
        may_be = {503} if path == "/readyz" else set()  # on a machine that stalls for seconds
        assert outcome.statuses("GET", path) - may_be == {200}
        assert outcome.statuses("HEAD", path) - may_be == {200}
        for method in _ALL_METHODS:
            assert outcome.statuses(method, path) == {405}
    for method in ("GET", *_ALL_METHODS - {"POST"}):
        assert outcome.statuses(method, "/v1/reports") == {405}
    assert outcome.checks.keys() >= {
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "response_headers_conformance",
        "negative_data_rejection",
        "positive_data_acceptance",
        "unsupported_method",
    }


def test_every_batch_that_fits_the_document_is_stored_once(open_to_all, database):
    outcome = explore(open_to_all, path="/v1/reports", mode="positive", hooks=[varying()])
    assert not outcome.faults, "\n\n".join(outcome.faults)
    for media_type in (JSON, COMPACT):
        for encoding in _ENCODINGS:
            assert outcome.accepted[media_type, encoding], (media_type, encoding)
    open_to_all.stop()
    stored = [stored_count(database, metric) for metric in METRICS]
    assert all(stored)
    assert sum(stored) == outcome.reports > EXAMPLES


@pytest.mark.long
def test_keys_are_asked_for_as_the_document_says(guarded, database):
    outcome = explore(guarded, key=_KEY)
    assert not outcome.faults, "\n\n".join(outcome.faults)
    assert outcome.checks["ignored_auth"]
    assert {200, 201, 422} <= outcome.statuses("POST", "/v1/reports") <= {401, *DESCRIBED}
    for path in ("/livez", "/openapi.json"):
        assert outcome.statuses("GET", path) == {200}
    guarded.stop()
    assert sum(stored_count(database, metric) for metric in METRICS) == outcome.reports > 0


def test_nothing_is_taken_without_the_key_that_the_document_asks_for(guarded, database):
    outcome = explore(guarded, path="/v1/reports")
    assert not outcome.faults, "\n\n".join(outcome.faults)
    assert outcome.statuses("POST", "/v1/reports") == {401}
    guarded.stop()
    assert not any(stored_count(database, metric) for metric in METRICS)


def _narrow(document: dict[str, Any], *, has_key: bool) -> None:
    """Let a document name the metrics, limits and keys of the collector that is tested."""
    del document["paths"]["/v1/switch"]  # which test_switch.py tests
    post = document["paths"]["/v1/reports"]["post"]
    post["security"] = [{"ingestKey": []}] if has_key else []
    schemas = document["components"]["schemas"]
    schemas["Batch"]["properties"]["reports"]["maxItems"] = _MOST
    for name, bits in (("Report", _base64), ("BinaryReport", _binary)):
        kinds = []
        for metric in METRICS:
            kind = copy.deepcopy(schemas["Report"])
            kind["properties"] |= {
                "metric": {"const": metric.name},
                "version": {"const": metric.version},
                "cohort": {"type": "integer", "minimum": 0, "exclusiveMaximum": metric.params.m},
                "bits": bits(metric.params.k // 8),
            }
            del kind["properties"]["slice"]
            kinds.append(kind)
        schemas[f"{name}s"] = {"anyOf": kinds}
    batch = schemas["Batch"]
    schemas["BinaryBatch"] = copy.deepcopy(batch)
    for name in ("", "Binary"):
        items = {"$ref": f"#/components/schemas/{name}Reports"}
        schemas[f"{name}Batch"]["properties"]["reports"]["items"] = items
    post["requestBody"]["content"][COMPACT] = {
        "schema": {"$ref": "#/components/schemas/BinaryBatch"}
    }


def _base64(width: int) -> dict[str, Any]:
    whole, rest = divmod(width, 3)
    one = "[A-Za-z0-9+/]"
    end = ("", f"{one}[AQgw]==", f"{one}{{2}}[AEIMQUYcgkosw048]=")[rest]
    return {"type": "string", "pattern": f"^{one}{{{4 * whole}}}{end}$"}


def _binary(width: int) -> dict[str, Any]:
    return {"type": "string", "minLength": width, "maxLength": width}


def explore(
    collector: Collector,
    *,
    path: str | None = None,
    key: str | None = None,
    mode: Literal["all", "positive"] = "all",
    hooks: Iterable[Callable[..., Any]] = (),
) -> Outcome:
    """Make the requests and compare the answers; the same ones in every run.

    `path`: only this one. `key`: what requests present where the document asks for a key. `mode`:
    whether requests that do not fit the document are made too. `hooks`: more of Schemathesis'
    hooks.
    """
    document = json.loads(send(collector.url, "GET", "/openapi.json").body)
    _narrow(document, has_key=key is not None)
    options: dict[str, Any] = {
        "base-url": collector.url,
        "seed": 20140814,
        "suppress-health-check": ["all"],
        "request-timeout": 120.0,
        "generation": {
            "mode": mode,
            "deterministic": True,
            "max-examples": EXAMPLES,
            "database": "none",
        },
        "phases": {"stateful": {"enabled": False}},
        "checks": {
            "negative_data_rejection": {"expected-statuses": [400, 401, 405, 413, 415, 422]},
            "not_a_server_error": {"expected-statuses": ["2xx", "4xx", 503]},
        },
    }
    if key:
        options["auth"] = {"openapi": {"ingestKey": {"bearer": key}}}
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig.from_dict(options))
    schema.validate()
    for hook in (filter_case, *hooks):
        schema.hook(hook)
    outcome = Outcome()
    for event in from_schema(schema.include(path=path) if path else schema).execute():
        if isinstance(event, events.ScenarioFinished):
            outcome.add(event.recorder)
        elif isinstance(event, events.NonFatalError | events.FatalError):
            outcome.faults.append(str(event))
    return outcome
