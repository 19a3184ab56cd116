"""The public interface as an OpenAPI 3.1 document.

Made from the settings in force and from the structs that bodies are decoded into, so that the
limits, and what each metric's reports must be like, are those by which requests are really checked.
Invariant: every answer of the public routes is described here; the contract test holds both to it.
"""

from __future__ import annotations

import importlib.metadata
from typing import Annotated, Any

import msgspec

from hubbub.collector.config.settings import Settings
from hubbub.collector.ingest.body import ENCODINGS
from hubbub.collector.ingest.reader import base64_bits, batch_struct, report_structs
from hubbub.collector.problems import Problem
from hubbub.protocol import compact
from hubbub.protocol.registry import Registry

_Json = dict[str, Any]

_REFUSALS = {
    400: "The body isn't what its media type says, or isn't compressed as its header says; or the "
    "request isn't valid HTTP, or broke off.",
    401: "The ingest key is missing, unknown or expired.",
    408: "The body took too long to arrive.",
    413: "The body, or the number of reports in it, is too large.",
    415: "The media type, or the Content-Encoding, isn't one of those that are described here.",
    422: "A report doesn't fit its metric, or its metric or version isn't known; nothing of the "
    "batch was stored. `errors` names each report that will never be accepted. With `retry` keep "
    "the reports of `unknown` and send them again later; send the others at once.",
    429: "The collector is too busy, or the key's quota is used up. Send the batch again after "
    "Retry-After.",
    500: "A fault of the collector. Send the same batch again.",
    503: "The store can't be reached. Send the same batch again after Retry-After.",
}
_RETRYABLE = {429, 503}  # these carry Retry-After


def openapi_document(settings: Settings, registry: Registry) -> _Json:
    """Return the document for these settings and the metrics of this registry."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hubbub collector",
            "version": importlib.metadata.version("hubbub"),
            "summary": f"Takes noisy reports from clients of {registry.application}.",
            "description": "Reports are randomised before they leave the client; what is stored of "
            "them is metric, version, UTC day, cohort and bits. Errors are problem details "
            "(RFC 9457). Other paths are answered 404, other methods 405 with `Allow`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {
            "/v1/reports": {"post": _post_reports(settings)},
            **({"/v1/switch": _switch()} if settings.switch else {}),
            "/livez": _probe("livez", "Whether the process is alive", "alive", "Alive."),
            "/readyz": _probe(
                "readyz",
                "Whether reports can be stored",
                "ready",
                "The store answers and takes reports, and there is room on its disk.",
                {503: "Reports can't be stored now."},
            ),
            "/openapi.json": _get("openapi", "This document", {"type": "object"}, "The document."),
        },
        "components": _components(settings, registry),
    }


def _switch() -> _Json:
    operations = _get("switch", "Which metrics clients are not to report", {}, "The same for all.")
    schema = {"type": "string", "description": "Section 12 of the protocol lays it out."}
    operations["get"]["responses"]["200"]["content"] = {"text/plain": {"schema": schema}}
    return operations


def _post_reports(settings: Settings) -> _Json:
    keys = bool(settings.ingest_keys)
    refusals = {status: text for status, text in _REFUSALS.items() if keys or status != 401}
    operation: _Json = {
        "operationId": "postReports",
        "summary": "Store a batch of reports, durably and once",
        "description": "A batch is stored whole or refused whole. It may be sent again under the "
        "same `batch_id` until it is answered: it is counted once.",
        "parameters": [
            {
                "name": "Content-Encoding",
                "in": "header",
                "description": "How the body is compressed. `deflate` is zlib's format.",
                "schema": {"enum": ["identity", *ENCODINGS], "default": "identity"},
            }
        ],
        "requestBody": {
            "required": True,
            "description": f"At most {settings.max_body_bytes} bytes, compressed or not. "
            f"`{compact.MEDIA_TYPE}` carries the members of a batch as bytes, in one section for "
            "each metric and version; section 8 of the protocol lays them out.",
            "content": {
                "application/json": {"schema": _reference("Batch")},
                compact.MEDIA_TYPE: {"schema": _reference("BinaryBatch")},
            },
        },
        "responses": {
            "201": _json_response("Stored durably.", _reference("Accepted")),
            "200": _json_response("Was stored already.", _reference("Duplicate")),
            **_problems(refusals),
        },
    }
    if keys:
        either: list[_Json] = [{}] if settings.anonymous else []
        operation["security"] = [*either, {"ingestKey": []}]
    return operation


def _probe(
    name: str, summary: str, word: str, answer: str, refusals: dict[int, str] | None = None
) -> _Json:
    return _get(name, summary, _object({"status": {"const": word}}), answer, refusals)


def _get(
    name: str, summary: str, schema: _Json, answer: str, refusals: dict[int, str] | None = None
) -> _Json:
    """Return the operations GET and HEAD of a path."""
    responses = {"200": _json_response(answer, schema), **_problems(refusals or {})}
    without_body = {
        status: {part: value for part, value in response.items() if part != "content"}
        for status, response in responses.items()
    }
    return {
        "get": {"operationId": name, "summary": summary, "responses": responses},
        "head": {
            "operationId": f"{name}Head",
            "summary": f"{summary}, without the body",
            "responses": without_body,
        },
    }


def _components(settings: Settings, registry: Registry) -> _Json:
    metrics = [registry[name] for name in sorted(registry)]
    batches = [
        batch_struct(report_structs(metrics, bits, f"{prefix}Report"), settings.max_reports, name)
        for prefix, name, bits in (("", "Batch", base64_bits), ("Binary", "BinaryBatch", _binary))
    ]
    _, schemas = msgspec.json.schema_components(
        [*batches, Problem], ref_template=_reference("{name}")["$ref"]
    )
    for batch in batches:
        batch_id = schemas[batch.__name__]["properties"]["batch_id"]
        batch_id["pattern"] = batch_id["pattern"].replace(r"\Z", "$")  # as JSON Schema has it
    accepted = {"accepted": {"type": "integer", "minimum": 1}}
    schemas["Accepted"] = _object(dict(accepted))
    schemas["Duplicate"] = _object({**accepted, "duplicate": {"const": True}})
    components: _Json = {"schemas": schemas}
    if settings.ingest_keys:
        components["securitySchemes"] = {
            "ingestKey": {
                "type": "http",
                "scheme": "bearer",
                "description": "A key that the collector's operator gave to the app.",
            }
        }
    return components


def _binary(width: int) -> Any:
    """Return the type of bits in the compact form, for which JSON Schema has no word."""
    return Annotated[
        str,
        msgspec.Meta(
            min_length=width,
            max_length=width,
            description=f"Binary of {width} bytes.",
            extra_json_schema={"contentMediaType": "application/octet-stream"},
        ),
    ]


def _problems(refusals: dict[int, str]) -> _Json:
    responses: _Json = {}
    for status, text in refusals.items():
        headers: _Json = {}
        if status in _RETRYABLE:
            headers["Retry-After"] = _header("Seconds to wait.", {"type": "integer", "minimum": 0})
        if status == 401:
            headers["WWW-Authenticate"] = _header("What to present.", {"type": "string"})
        responses[str(status)] = {
            "description": text,
            "content": {"application/problem+json": {"schema": _reference("Problem")}},
            **({"headers": headers} if headers else {}),
        }
    return responses


def _header(description: str, schema: _Json) -> _Json:
    return {"description": description, "required": True, "schema": schema}


def _json_response(description: str, schema: _Json) -> _Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _object(properties: _Json) -> _Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _reference(schema: str) -> _Json:
    return {"$ref": f"#/components/schemas/{schema}"}
