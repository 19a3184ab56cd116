"""A store of three days' reports of a metric of each type, and what decoding them gives."""

import asyncio
import datetime as dt
import json
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from factories import make_metric, make_params, registry_toml
from hubbub.decoder import decode_metric
from hubbub.protocol import (
    BooleanType,
    EnumType,
    Metric,
    OpenStringType,
    OrdinalType,
    Records,
    record_width,
)
from hubbub.reporting import Estimates
from hubbub.storage import MetricVersion, NewBatch, export_partitions, open_store, plan_export
from unit.decoder.joint_tables import BY_SITE, enum_metric, noise
from unit.decoder.rendered import json_of

DAYS = [dt.date(2026, 11, day) for day in (1, 2, 3)]
NOISE = make_params(k=32, h=2, m=8, f=0.1, p=0.1, q=0.9)
LOUD = make_params(k=32, f=0.25, p=0.2, q=0.6)
WORDS = make_metric("words", params=NOISE)
NAMES = [f"word {number}" for number in range(20)]
METRICS: dict[str, tuple[Metric, Any, dict[str, Any]]] = {
    "string": (WORDS, "word 3", {"candidates": NAMES, "method": "regression"}),
    "string by day": (
        WORDS,
        "word 3",
        {"candidates": NAMES, "method": "regression", "by": "day"},
    ),
    "enum": (
        make_metric("theme", metric_type=EnumType(("a", "b", "c")), params=NOISE),
        "b",
        {},
    ),
    "boolean by day": (
        make_metric("dark", metric_type=BooleanType(), params=NOISE),
        True,
        {"by": "day"},
    ),
    "ordinal": (
        make_metric("age", metric_type=OrdinalType((10.0, 20.0, 30.0)), params=NOISE),
        15,
        {},
    ),
    "joint": (enum_metric((3, 2)), {"crash": "crash 1", "driver": "driver 0"}, {}),
    "hashed joint": (
        make_metric("sites", metric_type=BY_SITE, params=noise(4.0, k=64, m=8), one_time=True),
        {"site": "b.example", "secure": True},
        {"candidates": {"site": ["a.example", "b.example"]}},
    ),
    "open string": (
        make_metric("open", metric_type=OpenStringType((2, 4), 8), params=LOUD),
        "word",
        {"candidates": ["word", "none"]},
    ),
}


LIKELIHOOD: dict[str, Any] = {"candidates": NAMES, "method": "likelihood"}
GROUPED = make_metric("words", params=NOISE._replace(k=8))
WAYS = METRICS | {
    # A search among all strings takes long.
    "open string": (*METRICS["open string"][:2], {"extend": "word"}),
    "whole reports": (WORDS, "word 3", LIKELIHOOD),
    "whole reports by day": (WORDS, "word 3", LIKELIHOOD | {"by": "day"}),
    "few different reports": (GROUPED, "word 3", LIKELIHOOD),
    "few different reports by day": (GROUPED, "word 3", LIKELIHOOD | {"by": "day"}),
}
"""All that files of reports are decoded to."""


def reports_of(metric: Metric, value: Any, seed: int, n: int = 2_000) -> bytes:
    """Return records of clients of whom half have one value, and the others none that is listed."""
    rng, params = np.random.default_rng(seed), metric.params
    cohorts = rng.integers(0, params.m, n)
    is_hashed = metric.type.width is None
    true = [
        metric.type.bits(value, int(cohort), params)
        if number % 2
        else is_hashed << number % params.k
        for number, cohort in enumerate(cohorts)
    ]
    rows = np.array([list(bits.to_bytes(params.k // 8, "little")) for bits in true], dtype=np.uint8)
    is_set = np.unpackbits(rows, axis=1, bitorder="little") == 1
    bits = rng.random(is_set.shape) < np.where(is_set, params.q_star, params.p_star)
    packed = np.packbits(bits, axis=1, bitorder="little")
    return np.hstack([cohorts.astype("<u2")[:, None].view(np.uint8), packed]).tobytes()


class Stored:
    """A store of three days' reports of a metric, of which some can be counted."""

    def __init__(self, folder: Path, metric: Metric, value: Any, n: int = 2_000) -> None:
        self.metric, self.folder = metric, folder
        self.url = f"sqlite:///{folder}/hubbub.db"
        self.registry = folder / "metrics.toml"
        self.registry.write_text(registry_toml(metric), encoding="utf-8")
        self.by_day = {
            day: reports_of(metric, value, seed, n) for seed, day in enumerate(DAYS, start=1)
        }
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        key, width = MetricVersion(self.metric.name, 1), record_width(self.metric.params.k)
        async with open_store(self.url, create=True) as store:
            await store.declare([self.metric])
            for day, records in self.by_day.items():
                batch = NewBatch(secrets.token_bytes(16), {key: Records(width, records)})
                await store.append([batch], day)

    def count_before(self, day: dt.date) -> None:
        async def count() -> None:
            async with open_store(self.url, create=True) as store:
                await store.counts.count_reports(day)

        asyncio.run(count())

    def export(self) -> str:
        async def export() -> None:
            async with open_store(self.url, create=False) as store:
                plan = await plan_export(store)
                async for _ in export_partitions(store, self.folder / "out", plan):
                    pass

        asyncio.run(export())
        return f"parquet:{self.folder}/out"

    def decode(self, store: str | None = None, /, **options: Any) -> Estimates:
        given: dict[str, Any] = {
            "metrics": self.registry,
            "store": store or self.url,
            "min_reports": 100,
        }
        return decode_metric(self.metric.name, **(given | options))


def numbers_of(result: Estimates) -> object:
    """Return all of a result but where it comes from, and what single reports alone would show."""
    document = json.loads(json_of(result))
    document.pop("provenance")
    anomalies = document.pop("anomalies")
    findings = document.pop("findings")
    document["findings"] = [each for each in findings if each["code"] != "repeated_reports"]
    return document, anomalies["set_bits"], anomalies["cohorts"]
