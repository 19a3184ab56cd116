"""What operators see: refusals by reason and key, latencies, what ends when, and what runs."""

import asyncio
import datetime as dt
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from factories import make_metric, make_params, registry_toml
from hubbub.collector import generate_secret
from hubbub.simulations import Collector
from hubbub.storage import SCHEMA_VERSION, open_store
from programs import forked_collector
from service.posting import make_batch, post, send, wait_until, wait_until_published
from unit.collector.batches import make_new_batch

_TOKEN, _TOKEN_HASH = generate_secret("admin")
_KEYS = {name: generate_secret("ingest") for name in ("app", "slow", "old", "other")}
_TODAY = dt.datetime.now(dt.UTC).date()
_SOON = _TODAY + dt.timedelta(days=9)
_CONFIG = f"""
admin_port = 0
publish_seconds = 0.2
upkeep_seconds = 3600
[admin_tokens.ops]
sha256 = "{_TOKEN_HASH}"
[ingest_keys.app]
sha256 = "{_KEYS["app"][1]}"
expires = {_SOON}
[ingest_keys.slow]
sha256 = "{_KEYS["slow"][1]}"
reports_per_second = 0.001
burst = 5
[ingest_keys.old]
sha256 = "{_KEYS["old"][1]}"
expires = 2026-01-31
"""


class Served:
    """A collector with keys, and what its admin listener tells."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.admin = collector.read_admin_url()
        wait_until_published(self.admin, _TOKEN)

    def ask(self, path: str) -> Any:
        return send(self.admin, "GET", path, headers={"Authorization": f"Bearer {_TOKEN}"})

    def numbers(self, family: str) -> dict[tuple[str, ...], float]:
        """Return what Prometheus reads of a family, by the values of its labels in their order."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for found in text_string_to_metric_families(self.ask("/metrics").body.decode())
            for sample in found.samples
            if sample.name == family
        }

    def post(self, key: str, reports: int = 1, **options: Any) -> int:
        header = {"Authorization": f"Bearer {_KEYS[key][0]}"}
        return post(self.collector.url, make_batch(reports, **options), headers=header).status


@pytest.fixture
def served(metrics_file, database, tmp_path) -> Iterator[Served]:
    config = tmp_path / "collector.toml"
    config.write_text(_CONFIG, encoding="utf-8")
    with forked_collector(metrics_file, database, ["--config", str(config)]) as collector:
        yield Served(collector)


def test_refusals_are_counted_by_reason_and_by_the_name_of_the_key(served):
    unheard = make_metric("unheard_of")
    assert [served.post("slow", 6), served.post("slow", 5), served.post("slow", 1)] == [
        413,
        201,
        429,
    ]
    assert [served.post("old") for _ in range(3)] == [401] * 3
    assert served.post("other") == 401
    assert served.post("app", metric=unheard) == 422
    for header in ({}, {"Authorization": "Bearer guess"}):
        assert post(served.collector.url, make_batch(), headers=header).status == 401
    wait_until(lambda: sum(served.numbers("hubbub_requests_total").values()) == 10)
    assert served.numbers("hubbub_request_seconds_count")[()] == 4  # that were let in
    refused = served.numbers("hubbub_key_refusals_total")  # of each key and reason, from 0 on
    assert {labels: number for labels, number in refused.items() if number} == {
        ("old", "key_expired"): 3,
        ("slow", "quota"): 1,
        ("slow", "too_large"): 1,
    }
    happened = {reason: n for reason, n in served.numbers("hubbub_requests_total").items() if n}
    assert happened == {
        ("key_expired", "401"): 3,
        ("key_malformed", "401"): 1,
        ("key_missing", "401"): 1,
        ("key_unknown", "401"): 1,
        ("quota", "429"): 1,
        ("stored", "201"): 1,
        ("too_large", "413"): 1,
        ("unregistered", "422"): 1,
    }
    told = served.ask("/metrics").body + served.ask("/status.json").body + served.ask("/").body
    for secret, hashed in _KEYS.values():
        assert secret.encode() not in told
        assert hashed.encode() not in told


def test_running_versions_can_be_compared_between_collectors(served, metrics_file):
    wait_until(lambda: SCHEMA_VERSION in str(served.numbers("hubbub_build_info")))
    (first,) = served.numbers("hubbub_build_info")
    digest, schema, version = first
    assert (len(digest), schema) == (12, SCHEMA_VERSION)
    assert version == served.ask("/status.json").json["software"]
    changed = make_metric(version=2, params=make_params(k=64))
    metrics_file.write_text(registry_toml(changed), encoding="utf-8")
    served.collector.process.send_signal(signal.SIGHUP)
    wait_until(lambda: first not in served.numbers("hubbub_build_info"))
    ((other, *_),) = served.numbers("hubbub_build_info")
    assert other != digest
    assert served.ask("/status.json").json["registry_digest"] == other


def test_keys_that_end_soon_are_reported(served):
    wait_until(lambda: served.numbers("hubbub_expiry_timestamp_seconds"))
    ends = served.numbers("hubbub_expiry_timestamp_seconds")
    assert ends.keys() == {("app", "ingest_key"), ("old", "ingest_key")}
    moment = dt.datetime.combine(_SOON + dt.timedelta(days=1), dt.time(), dt.UTC)
    assert ends["app", "ingest_key"] == moment.timestamp()
    page = served.ask("/").body.decode()
    assert f"The ingest key app ends on {moment:%Y-%m-%d} 00:00 UTC." in page
    assert "The ingest key old ended on 2026-02-01 00:00 UTC." in page


def test_days_that_are_over_and_not_mixed_are_counted(metrics_file, database, tmp_path):
    async def store_before():
        async with open_store(f"sqlite:///{database}", create=True) as store:
            for age in (1, 2):
                await store.append([make_new_batch()], _TODAY - dt.timedelta(days=age))

    asyncio.run(store_before())
    config = tmp_path / "collector.toml"
    config.write_text(_CONFIG.replace("= 3600", "= 0.1"), encoding="utf-8")
    with forked_collector(metrics_file, database, ["--config", str(config)]) as collector:
        served = Served(collector)
        wait_until(lambda: served.numbers("hubbub_unmixed_days") == {(): 0})
        assert served.ask("/status.json").json["unmixed_days"] == 0

    async def count() -> tuple[int, int]:
        async with open_store(f"sqlite:///{database}", create=True) as store:
            await store.append([make_new_batch()], _TODAY - dt.timedelta(days=3))
            return await store.unmixed_days(_TODAY), await store.unmixed_days(
                _TODAY - dt.timedelta(days=3)
            )

    assert asyncio.run(count()) == (1, 0)
