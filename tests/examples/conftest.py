"""The registry, the collector and the crowd of the examples."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest

from hubbub.client import Batch, Encoder, Registry, Report, batch_to_json
from programs import forked_collector

METRICS = """
application = "com.example.notes"

[dimensions]
release = ["1.0", "1.1"]

[metrics.theme]                 # one of a few values
version = 1
type = "enum"
categories = ["light", "dark", "system"]
dimensions = ["release"]
description = "Colour theme, to know which one needs work"
owner = "privacy@example.com"
expires = 2099-12-31
mode = "once"                   # one report each period
period_days = 30
response = "subset"
size = 1
q = 0.787                       # epsilon 2 per period

[metrics.start_seconds]         # a number, for its mean
version = 1
type = "number"
low = 0
high = 60
cells = 16
window = 5
description = "Seconds until the first window is drawn"
owner = "privacy@example.com"
expires = 2099-12-31
mode = "once"
period_days = 30
q = 0.75                        # epsilon 1.89

[metrics.homepage]              # any string; a list says which to look for
version = 1
type = "string"
k = 128
h = 1
m = 16
description = "Host name of the home page, to find hijacked settings"
owner = "privacy@example.com"
expires = 2099-12-31
mode = "once"
period_days = 30
p = 0.018
q = 0.5                         # epsilon 4
"""


class Service(NamedTuple):
    """Where clients report, and where the decoder reads."""

    metrics: Path
    store: str
    url: str


def post(service: Service, reports: list[Report]) -> int:
    """Send reports as a client would; return the collector's answer."""
    body = batch_to_json(Batch(tuple(reports)))
    request = Request(f"{service.url}/v1/reports", body, {"Content-Type": "application/json"})
    with urlopen(request) as response:
        return response.status


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    """Run a collector."""
    folder = tmp_path_factory.mktemp("service")
    metrics = folder / "metrics.toml"
    metrics.write_text(METRICS, encoding="utf-8")
    with forked_collector(metrics, folder / "hubbub.db") as collector:
        yield Service(metrics, f"sqlite:///{folder}/hubbub.db", collector.url)


@pytest.fixture(scope="module")
def crowd(service) -> Service:
    """Let 4,000 people report: a quarter like it dark in release 1.0, and half in release 1.1."""
    people = random.Random(1)  # noqa: S311 - their values are no secret
    registry = Registry.load(service.metrics)
    for release, weights in (("1.0", (60, 25, 15)), ("1.1", (35, 50, 15))):
        metrics = registry.with_dimensions({"release": release})
        for _ in range(20):
            reports = []
            for _ in range(100):
                secret = os.urandom(32)
                values: dict[str, str | float] = {
                    "theme": people.choices(["light", "dark", "system"], weights)[0],
                    "homepage": people.choices(["news.example", "hijacked.example"], [80, 20])[0],
                    "start_seconds": people.gauss(20, 5),
                }
                reports += [Encoder(metrics[name], secret).encode(values[name]) for name in values]
            assert post(service, reports) == 201
    return service
