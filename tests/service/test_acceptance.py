"""What the collector takes, in which forms, and that it counts every batch once."""

import gzip
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from factories import make_metric, make_params, registry_toml
from hubbub.client import Batch, batch_to_json
from programs import forked_collector
from service.posting import (
    FORMS,
    Answer,
    make_batch,
    post,
    records_of,
    stored_count,
    stored_records,
)


def test_new_batch_is_stored_and_counts_once_under_its_id(collector, database):
    batch = make_batch(5)
    answer = post(collector.url, batch)
    assert (answer.status, answer.json) == (201, {"accepted": 5})
    assert answer.headers.get_content_type() == "application/json"
    assert sorted(stored_records(database)) == records_of(batch)
    for _ in range(3):
        answer = post(collector.url, batch)
        assert (answer.status, answer.json) == (200, {"accepted": 5, "duplicate": True})
    assert stored_count(database) == 5
    assert post(collector.url, Batch(batch.reports)).status == 201
    assert stored_count(database) == 10


def test_racing_copies_of_a_batch_are_counted_once(collector, database):
    for _ in range(10):
        _assert_one_of_many_is_new(_post_together([collector.url] * 24, make_batch(5)))
    assert stored_count(database) == 50


@pytest.mark.long
def test_copies_racing_to_two_collectors_of_one_store_are_counted_once(
    collector, metrics_file, database
):
    with forked_collector(metrics_file, database) as other:
        for _ in range(10):
            answers = _post_together([collector.url, other.url] * 12, make_batch(5))
            _assert_one_of_many_is_new(answers)
    assert stored_count(database) == 50


def test_all_forms_store_the_same_records(collector, database):
    batch = make_batch(70)
    for times, (content_type, encode) in enumerate(FORMS.items(), 1):
        again = Batch(batch.reports)
        assert post(collector.url, encode(again), content_type).status == 201
        assert sorted(stored_records(database)) == sorted(times * records_of(batch))


@pytest.mark.parametrize("first", FORMS)
def test_a_batch_keeps_its_identity_in_other_forms(collector, database, first):
    batch = make_batch(5)
    assert post(collector.url, FORMS[first](batch), first).status == 201
    for content_type, encode in FORMS.items():
        answer = post(collector.url, encode(batch), content_type)
        assert (answer.status, answer.json) == (200, {"accepted": 5, "duplicate": True})
    assert stored_count(database) == 5


@pytest.mark.parametrize("content_type", FORMS)
def test_gzip_body_is_accepted(collector, database, content_type):
    batch = make_batch(300)
    body = FORMS[content_type](batch)
    packed = gzip.compress(body)
    assert len(packed) < len(body) / 2
    assert post(collector.url, packed, content_type, {"Content-Encoding": "gzip"}).status == 201
    assert sorted(stored_records(database)) == records_of(batch)


def test_media_type_may_name_a_charset(collector):
    assert post(collector.url, make_batch(), "application/json; charset=utf-8").status == 201


def test_body_of_exactly_the_largest_size_is_accepted(metrics_file, database):
    body = batch_to_json(make_batch())
    options = ["--max-body-bytes", str(len(body))]
    with forked_collector(metrics_file, database, options) as collector:
        assert post(collector.url, body).status == 201
        assert post(collector.url, batch_to_json(make_batch()) + b" ").status == 413
    assert stored_count(database) == 3


def test_reports_of_several_metrics_in_one_batch_are_stored_apart(tmp_path, database):
    homepage, search = make_metric(), make_metric("search", params=make_params(k=8, m=4))
    metrics = tmp_path / "two.toml"
    metrics.write_text(registry_toml(homepage, search), encoding="utf-8")
    mixed = Batch(make_batch(5, homepage).reports + make_batch(7, search).reports)
    with forked_collector(metrics, database) as collector:
        assert post(collector.url, mixed).json == {"accepted": 12}
    assert sorted(stored_records(database, homepage)) == records_of(make_batch(5, homepage))
    assert sorted(stored_records(database, search)) == records_of(make_batch(7, search))


def _post_together(urls: Sequence[str], batch: Batch) -> list[Answer]:
    """Post copies of a batch, one to each address, all at the same moment."""
    barrier = threading.Barrier(len(urls))

    def work(url: str) -> Answer:
        barrier.wait()
        return post(url, batch)

    with ThreadPoolExecutor(len(urls)) as pool:
        return list(pool.map(work, urls))


def _assert_one_of_many_is_new(answers: Sequence[Answer]) -> None:
    statuses = sorted(answer.status for answer in answers)
    assert statuses == [200] * (len(answers) - 1) + [201]
