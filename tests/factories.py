"""Small makers of what the tests need; every default can be overridden by keyword."""

import datetime as dt
import hashlib
import json

from hubbub.client import Encoder, Metric, RapporParams, Registry, Report
from hubbub.client.encoder import PermanentResponse
from hubbub.client.randomness import ByteStream, KeyedStream
from hubbub.protocol import (
    MAX_PERIODS,
    MAX_VALUES,
    UNARY,
    Dimension,
    JointType,
    MetricType,
    Mode,
    OpenStringType,
    Response,
    StringType,
    Subset,
    Window,
)

APPLICATION = "com.example.browser"
FAR_AWAY = dt.date(2099, 12, 31)


def make_params(
    k: int = 128, h: int = 2, m: int = 64, f: float = 0.5, p: float = 0.25, q: float = 0.75
) -> RapporParams:
    return RapporParams(k=k, h=h, m=m, f=f, p=p, q=q)


def make_metric(
    name: str = "homepage",
    *,
    version: int = 1,
    params: RapporParams | None = None,
    application: str = APPLICATION,
    expires: dt.date = FAR_AWAY,
    metric_type: MetricType | None = None,
    one_time: bool = False,
    max_values: int = MAX_VALUES,
    period_days: int = 0,
    max_periods: int = MAX_PERIODS,
    mode: Mode | None = None,
    response: Response = UNARY,
    reports_per_day: int = 0,
    dimensions: tuple[Dimension, ...] = (),
) -> Metric:
    """Return a metric, with memory "period" if that has days.

    Another type than string brings k, h and m of its own; one that hashes takes them. A response
    that draws whole reports brings its noise.
    """
    metric_type = metric_type or StringType()
    if isinstance(response, Subset):
        params = make_params(f=0.0, p=response.other_chance, q=response.chance)
    if isinstance(response, Window):
        outside = response.cells - response.width
        chances = (1 - response.chance) / outside, response.chance / response.width
        params = make_params(f=0.0, p=chances[0], q=chances[1])
    params = params or make_params()
    own_bits = isinstance(metric_type, JointType) and not metric_type.hashed
    size = metric_type.filter_size({} if own_bits else params._asdict())
    params = RapporParams(**(size | params.noise))
    return Metric(
        application=application,
        name=name,
        version=version,
        type=metric_type,
        params=params,
        description="What the tests ask",
        owner="privacy@example.com",
        expires=expires,
        mode=mode or ("one-time" if one_time else "longitudinal"),
        response=response,
        reports_per_day=reports_per_day,
        max_values=max_values,
        memory="period" if period_days else "value",
        period_days=period_days,
        max_periods=max_periods if period_days else 0,
        dimensions=dimensions,
    )


def registry_toml(*metrics: Metric, lifetime_epsilon: float | None = None) -> str:
    """Return the metrics.toml of some metrics, all of one application."""
    given = metrics or (make_metric(),)
    budget = "" if lifetime_epsilon is None else f"lifetime_epsilon = {lifetime_epsilon}\n"
    head = f'application = "{given[0].application}"\n{budget}'
    table = {d.name: list(d.values) or {"pattern": d.pattern} for m in given for d in m.dimensions}
    head += f"dimensions = {toml_value(table)}\n" if table else ""
    return head + "".join(map(_metric_toml, given))


def make_registry(*metrics: Metric, lifetime_epsilon: float | None = None) -> Registry:
    return Registry.parse(registry_toml(*metrics, lifetime_epsilon=lifetime_epsilon))


def make_secret(client: int | str = 0) -> bytes:
    """Return the 32 secret bytes of a numbered client, the same in every run."""
    return hashlib.sha256(f"test client {client}".encode()).digest()


def make_report(metric: Metric | None = None, *, cohort: int = 0, bits: int = 0) -> Report:
    metric = metric or make_metric()
    width = metric.params.k // 8
    return Report(metric.name, metric.version, cohort, bits.to_bytes(width, "little"))


def seeded_stream(label: str) -> KeyedStream:
    """Return uniform bytes that are the same in every run: a test's own, repeatable coins."""
    return KeyedStream(f"test stream {label}".encode())


def report_bits(encoder: Encoder, permanent: int, stream: ByteStream) -> int:
    report = encoder.report(PermanentResponse(encoder.cohort, permanent), stream)
    return int.from_bytes(report.bits, "little")


def _memory_entries(metric: Metric) -> dict[str, object]:
    daily = {"reports_per_day": 1} if metric.reports_per_day else {}
    if metric.memory == "value":
        return {"max_values": metric.max_values, **daily}
    return {
        **daily,
        "memory": metric.memory,
        "period_days": metric.period_days,
        "max_periods": metric.max_periods,
    }


def _type_entries(metric: Metric) -> dict[str, object]:
    a_type, params = metric.type, metric.params
    if isinstance(a_type, OpenStringType):
        return {"steps": list(a_type.steps), "k": params.k, "m": a_type.cohorts}
    if isinstance(a_type, StringType):
        return {"k": params.k, "h": params.h, "m": params.m}
    if isinstance(a_type, JointType):
        size = {"k": params.k, "h": params.h, "m": params.m} if a_type.hashed else {}
        return {"fields": a_type.definition()["fields"], **size}
    return a_type.definition()


def _dimension_entries(metric: Metric) -> dict[str, object]:
    if not metric.dimensions:
        return {}
    names = [dimension.name for dimension in metric.dimensions]
    return {"dimensions": names, "min_reports": metric.min_reports}


def _noise_entries(metric: Metric) -> dict[str, object]:
    response = metric.response
    if isinstance(response, Subset):
        return {"response": "subset", "size": response.width, "q": response.chance}
    if isinstance(response, Window):
        return {"q": response.chance}
    return dict(metric.params.noise)


def toml_value(value: object) -> str:
    """Return a value as TOML writes it; tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value)


def _metric_toml(metric: Metric) -> str:
    entries: dict[str, object] = {
        "version": metric.version,
        "type": metric.type.name,
        "description": metric.description,
        "owner": metric.owner,
        **_memory_entries(metric),
        **_type_entries(metric),
        **_noise_entries(metric),
        **({"mode": metric.mode} if metric.reports_once else {}),
        **_dimension_entries(metric),
    }
    lines = [f"{key} = {toml_value(value)}" for key, value in entries.items()]
    return "\n".join(["", f"[metrics.{metric.name}]", *lines, f"expires = {metric.expires}", ""])
