"""Ingest keys at the door: who may send, and how much."""

import datetime as dt
from collections.abc import Iterator

import pytest

from hubbub.client import Batch, Telemetry
from hubbub.collector import generate_secret
from hubbub.simulations import Collector
from programs import forked_collector
from service.posting import Answer, make_batch, post, send, stored_count

_GOOD, _GOOD_HASH = generate_secret("ingest")
_SLOW, _SLOW_HASH = generate_secret("ingest")
_OVER, _OVER_HASH = generate_secret("ingest")
_UNKNOWN, _ = generate_secret("ingest")
_YESTERDAY = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=1)
_CONFIG = f"""
[ingest_keys.browser]
sha256 = "{_GOOD_HASH}"
expires = 2099-12-31
[ingest_keys.slow]
sha256 = "{_SLOW_HASH}"
reports_per_second = 0.1
burst = 100
[ingest_keys.over]
sha256 = "{_OVER_HASH}"
expires = {_YESTERDAY}
"""


@pytest.fixture
def guarded(metrics_file, database, tmp_path) -> Iterator[Collector]:
    """Serve with three keys, and to nobody without one."""
    config = tmp_path / "collector.toml"
    config.write_text(_CONFIG, encoding="utf-8")
    with forked_collector(metrics_file, database, ["--config", str(config)]) as collector:
        yield collector


def test_reports_are_taken_with_a_key_only(guarded, database):
    assert _post(guarded, _GOOD).status == 201
    for header in (None, "", "Basic Zm9vOmJhcg==", "Bearer", f"Token {_GOOD}", f"Bearer {_GOOD}x"):
        answer = post(
            guarded.url, make_batch(), headers={"Authorization": header} if header else {}
        )
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.headers.get_content_type() == "application/problem+json"
        assert answer.json["detail"].startswith("Authorization: ")
    assert _post(guarded, _UNKNOWN).status == 401
    assert "expired" in _post(guarded, _OVER).json["detail"]
    assert stored_count(database) == 3
    for path in ("/livez", "/readyz", "/openapi.json"):
        assert send(guarded.url, "GET", path).status == 200


def test_each_key_has_its_own_quota_and_retry_after(guarded):
    for_good = _post(guarded, _SLOW, reports=101)
    assert for_good.status == 413
    assert for_good.json["detail"] == "reports: 101; this key may send at most 100 at once"
    assert _post(guarded, _SLOW, reports=100).status == 201
    answer = _post(guarded, _SLOW, reports=1)
    assert answer.status == 429
    assert 80 < int(answer.headers["Retry-After"]) <= 100
    assert _post(guarded, _GOOD, reports=1).status == 201


def test_what_is_sent_again_counts_once_and_costs_quota(guarded, database):
    batch = make_batch(40)
    assert [_send(guarded, _SLOW, batch).status for _ in range(3)] == [201, 200, 429]
    assert stored_count(database) == 40


def test_app_with_a_key_is_heard_and_its_key_is_kept_nowhere(
    guarded, metrics_file, database, tmp_path, capfd
):
    state = tmp_path / "state"
    telemetry = Telemetry(metrics_file, guarded.url, state, ingest_key=_GOOD)
    telemetry.record("homepage", "a")
    assert telemetry.flush(timeout=30)
    telemetry.close()
    guarded.stop()
    assert stored_count(database) == 1
    said = capfd.readouterr()
    assert _GOOD not in said.out + said.err
    for path in (*state.iterdir(), database):
        assert _GOOD.encode() not in path.read_bytes()


def _post(collector: Collector, key: str, reports: int = 3) -> Answer:
    return _send(collector, key, make_batch(reports))


def _send(collector: Collector, key: str, batch: Batch) -> Answer:
    return post(collector.url, batch, headers={"Authorization": f"Bearer {key}"})
