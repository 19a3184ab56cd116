"""A running service notices with the next publication that 1% of today's reports are forged."""

import asyncio
import datetime as dt
import json
import secrets
from pathlib import Path
from typing import NamedTuple

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from factories import make_metric
from hubbub.client import Batch, Report
from hubbub.collector.access.auth import generate_secret
from hubbub.inference.arrays import ByteArray, IntArray
from hubbub.protocol.records import Records, record_width
from hubbub.simulations.simulated_clients.clients import LongitudinalClients, as_records
from hubbub.storage import MetricVersion, NewBatch, open_store
from programs import forked_collector
from service.posting import COMPACT, FORMS, post, send, wait_until, wait_until_published

_METRIC = make_metric()
_KEY = MetricVersion(_METRIC.name, _METRIC.version)
_CLIENTS = 40_000
_FORGED = _CLIENTS // 100
_OF_BATCH = 4_000
_TOKEN, _TOKEN_HASH = generate_secret("admin")
_CONFIG = f"""
admin_port = 0
publish_seconds = 1.2
upkeep_seconds = 0.4
[admin_tokens.all]
sha256 = "{_TOKEN_HASH}"
scopes = ["read"]
"""


class _Week:
    """The same clients report day after day what they hold, each with a response of its own."""

    def __init__(self) -> None:
        values = [f"page {number}" for number in range(100)]
        self._clients = LongitudinalClients(values, _METRIC.params, np.random.SeedSequence(17))
        self._rng = np.random.Generator(np.random.SFC64(17))
        self._numbers = np.arange(_CLIENTS)
        self._held = self._rng.zipf(1.5, _CLIENTS) % len(values)

    def reports(self) -> tuple[IntArray, ByteArray]:
        """Return the cohorts and bits of another day."""
        bits = self._clients.report(self._numbers, self._held, self._rng)
        return self._clients.cohorts(self._numbers), bits


class _Admin(NamedTuple):
    url: str

    def ask(self, path: str) -> str:
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        return send(self.url, "GET", path, headers=headers).body.decode()

    def total(self, name: str, **labels: str) -> float:
        """Return what Prometheus would read, over all other labels."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.ask("/metrics"))
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def page_after_one_publication(self) -> str:
        """Return the page as it is when the publication that begins next has ended."""

        def stored_at() -> str:
            return str(json.loads(self.ask("/status.json"))["stored_at"])

        for _ in range(2):  # one may have been under way
            before = stored_at()
            wait_until(lambda before=before: stored_at() != before)  # type: ignore[misc]
        return self.ask("/")


def test_forged_hundredth_of_today_raises_the_alarm_with_the_next_publication(
    metrics_file, database, tmp_path
):
    """P(false failure) < 1e-6: that honest reports, the same in every run, raise it themselves.

    Of the 400 equal ones about 71 are in a sample, fewer than 30 with a chance below 1e-8.
    """
    week = _Week()
    asyncio.run(_store_days_before(database, week))
    config = tmp_path / "collector.toml"
    config.write_text(_CONFIG, encoding="utf-8")
    with forked_collector(metrics_file, database, ["--config", str(config)]) as collector:
        admin = _Admin(collector.read_admin_url())
        wait_until_published(admin.url, _TOKEN)
        cohorts, bits = week.reports()
        _send(collector.url, cohorts, bits)
        page = admin.page_after_one_publication()
        assert "repeat others exactly" not in page
        assert "improbable number" not in page

        # As an honest client makes it, so that nothing but its repetition is wrong.
        _send(collector.url, cohorts[:1].repeat(_FORGED), bits[:1].repeat(_FORGED, axis=0))
        page = admin.page_after_one_publication()
        assert "of 50,000 recent reports repeat others exactly" in page
        assert "improbable number" not in page
        assert 30 <= admin.total("hubbub_repeated_reports") <= _FORGED

        rng = np.random.default_rng(18)
        crowded = np.packbits(rng.random((_FORGED, 128)) < 0.9, axis=1)
        _send(collector.url, rng.integers(_METRIC.params.m, size=_FORGED), crowded)
        page = admin.page_after_one_publication()
        assert f"{_FORGED} reports since the start with an improbable number" in page
        assert admin.total("hubbub_improbable_reports_total") == _FORGED


async def _store_days_before(database: Path, week: _Week) -> None:
    today = dt.datetime.now(dt.UTC).date()
    async with open_store(f"sqlite:///{database}", create=True) as store:
        await store.declare([_METRIC])
        for age in range(6, 0, -1):
            records = Records(record_width(_METRIC.params.k), as_records(*week.reports()))
            new = NewBatch(secrets.token_bytes(16), {_KEY: records})
            await store.append([new], today - dt.timedelta(days=age))


def _send(url: str, cohorts: IntArray, bits: ByteArray) -> None:
    for start in range(0, len(cohorts), _OF_BATCH):
        rows = zip(cohorts[start : start + _OF_BATCH], bits[start : start + _OF_BATCH], strict=True)
        reports = tuple(
            Report(_METRIC.name, _METRIC.version, int(cohort), row.tobytes())
            for cohort, row in rows
        )
        assert post(url, FORMS[COMPACT](Batch(reports)), COMPACT).status == 201
