"""Small makers of what the tests need; every default can be overridden by keyword."""

from __future__ import annotations

import datetime as dt
import hashlib

from hubbub.client import Metric, RapporParams, Registry, Report
from hubbub.client.randomness import KeyedStream

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
) -> Metric:
    return Metric(
        application=application,
        name=name,
        version=version,
        params=params or make_params(),
        description="What the tests ask",
        owner="privacy@example.com",
        expires=expires,
    )


def registry_toml(*metrics: Metric) -> str:
    """Return the metrics.toml of some metrics, all of one application."""
    given = metrics or (make_metric(),)
    return f'application = "{given[0].application}"\n' + "".join(map(_metric_toml, given))


def make_registry(*metrics: Metric) -> Registry:
    return Registry.parse(registry_toml(*metrics))


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


def _metric_toml(metric: Metric) -> str:
    params = metric.params
    return f"""
[metrics.{metric.name}]
version = {metric.version}
type = "string"
description = "{metric.description}"
owner = "{metric.owner}"
expires = {metric.expires}
k = {params.k}
h = {params.h}
m = {params.m}
f = {params.f}
p = {params.p}
q = {params.q}
"""
