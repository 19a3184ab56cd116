"""The public interface as an OpenAPI 3.1 document.

Made from the settings and the registry in force, so that the limits, and what each metric's reports
must be like, are those by which requests are really checked. What a maintainer must not break: an
answer that isn't described here is a fault of one or the other, and the contract test finds it.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from hubbub.client.metrics import Metric, Registry
from hubbub.collector.config.settings import Settings

_Json = dict[str, Any]

_REFUSALS = {
    400: "The body isn't JSON or MessagePack, or isn't compressed as its header says; or the "
    "request isn't valid HTTP, or broke off.",
    401: "The ingest key is missing, unknown or expired.",
    408: "The body took too long to arrive.",
    413: "The body, or the number of reports in it, is too large.",
    415: "The media type, or the Content-Encoding, isn't one of those that are described here.",
    422: "A report doesn't fit its metric; nothing of the batch was stored. `errors` names each "
    "report that is at fault.",
    429: "The collector is too busy, or the key's quota is used up. Send the batch again after "
    "Retry-After.",
    500: "A fault of the collector. Send the same batch again.",
    503: "The store can't be reached. Send the same batch again after Retry-After.",
}
_ENCODINGS = ("gzip", "deflate")
_RETRYABLE = {429, 503}
_BASE64 = "[A-Za-z0-9+/]"
_BASE64_ENDS = {0: "", 1: f"{_BASE64}[AQgw]==", 2: f"{_BASE64}{{2}}[AEIMQUYcgkosw048]="}


def openapi_document(settings: Settings, registry: Registry) -> _Json:
    """Return the document.

    Parameters
    ----------
    settings : Settings
    registry : Registry
    """
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
            "/livez": _probe("livez", "Whether the process is alive", "alive", "Alive."),
            "/readyz": _probe(
                "readyz",
                "Whether reports can be stored",
                "ready",
                "The store answers and takes reports, and there is room on its disk.",
                {503: "Reports can't be stored now; `detail` says why."},
            ),
            "/openapi.json": _get("openapi", "This document", {"type": "object"}, "The document."),
        },
        "components": _components(settings, registry),
    }


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
                "schema": {"enum": ["identity", *_ENCODINGS], "default": "identity"},
            }
        ],
        "requestBody": {
            "required": True,
            "description": f"At most {settings.max_body_bytes} bytes, compressed or not.",
            "content": {
                "application/json": {"schema": _reference("Batch")},
                "application/msgpack": {"schema": _reference("BinaryBatch")},
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
    problems = _problems(refusals or {})
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "responses": {"200": _json_response(answer, schema), **problems},
        },
        "head": {
            "operationId": f"{name}Head",
            "summary": f"{summary}, without the body",
            "responses": {
                "200": {"description": answer},
                **{status: _without_content(response) for status, response in problems.items()},
            },
        },
    }


def _components(settings: Settings, registry: Registry) -> _Json:
    metrics = [registry[name] for name in sorted(registry)]
    components: _Json = {
        "schemas": {
            "Batch": _batch(settings, [_report(metric, _base64(metric)) for metric in metrics]),
            "BinaryBatch": _batch(
                settings, [_report(metric, _binary(metric)) for metric in metrics]
            ),
            "Accepted": _object({"accepted": {"type": "integer", "minimum": 1}}),
            "Duplicate": _object(
                {"accepted": {"type": "integer", "minimum": 1}, "duplicate": {"const": True}}
            ),
            "Problem": _problem(),
        }
    }
    if settings.ingest_keys:
        components["securitySchemes"] = {
            "ingestKey": {
                "type": "http",
                "scheme": "bearer",
                "description": "A key that the collector's operator gave to the app.",
            }
        }
    return components


def _batch(settings: Settings, reports: list[_Json]) -> _Json:
    return _object(
        {
            "batch_id": {
                "type": "string",
                "pattern": "^[0-9a-f]{32}$",
                "description": "16 random bytes; the same in every attempt.",
            },
            "reports": {
                "type": "array",
                "minItems": 1,
                "maxItems": settings.max_reports,
                "items": {"anyOf": reports},
            },
        }
    )


def _report(metric: Metric, bits: _Json) -> _Json:
    report = _object(
        {
            "metric": {"const": metric.name},
            "version": {
                "const": metric.version,
                "description": "Or an earlier version, with that version's cohorts and bits.",
            },
            "cohort": {"type": "integer", "minimum": 0, "maximum": metric.params.m - 1},
            "bits": bits,
        }
    )
    return {"title": metric.name, "description": metric.description, **report}


def _base64(metric: Metric) -> _Json:
    whole, rest = divmod(metric.params.k // 8, 3)
    return {
        "type": "string",
        "contentEncoding": "base64",
        "pattern": f"^{_BASE64}{{{4 * whole}}}{_BASE64_ENDS[rest]}$",
        "description": f"{metric.params.k // 8} bytes; bit j is bit j % 8 of byte j // 8.",
    }


def _binary(metric: Metric) -> _Json:
    width = metric.params.k // 8
    return {
        "type": "string",
        "contentMediaType": "application/octet-stream",
        "minLength": width,
        "maxLength": width,
        "description": f"MessagePack binary of {width} bytes.",
    }


def _problem() -> _Json:
    schema = _object(
        {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {
                "type": "string",
                "description": "Names the report, the field and what was expected.",
            },
            "errors": {
                "type": "array",
                "minItems": 1,
                "description": "The reports that will never be accepted as they are.",
                "items": _object(
                    {"report": {"type": "integer", "minimum": 0}, "detail": {"type": "string"}}
                ),
            },
        }
    )
    schema["required"].remove("errors")
    return schema


def _problems(refusals: dict[int, str]) -> _Json:
    return {str(status): _refusal(status, text) for status, text in refusals.items()}


def _refusal(status: int, text: str) -> _Json:
    headers: _Json = {}
    if status in _RETRYABLE:
        headers["Retry-After"] = _header("Seconds to wait.", {"type": "integer", "minimum": 0})
    if status == 401:
        headers["WWW-Authenticate"] = _header("What to present.", {"type": "string"})
    response: _Json = {
        "description": text,
        "content": {"application/problem+json": {"schema": _reference("Problem")}},
    }
    return {**response, "headers": headers} if headers else response


def _header(description: str, schema: _Json) -> _Json:
    return {"description": description, "required": True, "schema": schema}


def _json_response(description: str, schema: _Json) -> _Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _without_content(response: _Json) -> _Json:
    return {name: part for name, part in response.items() if name != "content"}


def _object(properties: _Json) -> _Json:
    """Return the schema of an object that has all these members and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _reference(schema: str) -> _Json:
    return {"$ref": f"#/components/schemas/{schema}"}
