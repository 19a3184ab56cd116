"""Pages of other origins: none may send, but those of `cors_origins`."""

from hubbub.protocol import batch_to_json
from programs import forked_collector
from service.posting import make_batch, send

ALLOWED, OTHER = "https://app.example.com", "https://other.example.com"
_ASKED = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}


def allowed_origin(answer):
    return answer.headers["Access-Control-Allow-Origin"]


def test_page_of_an_allowed_origin_sends_and_reads_the_answer(metrics_file, database):
    body, json = batch_to_json(make_batch()), {"Content-Type": "application/json"}
    origins = ["--cors-origins", f"{ALLOWED} https://second.example.com"]
    with forked_collector(metrics_file, database, origins) as collector:
        for origin, told in ((ALLOWED, ALLOWED), (OTHER, None)):
            asked = send(
                collector.url, "OPTIONS", "/v1/reports", headers=_ASKED | {"Origin": origin}
            )
            assert (asked.status, allowed_origin(asked)) == (200, told)
            sent = send(collector.url, "POST", "/v1/reports", body, json | {"Origin": origin})
            assert (sent.status in {200, 201}, allowed_origin(sent)) == (True, told)
            refused = send(collector.url, "POST", "/v1/reports", b"{", json | {"Origin": origin})
            assert (refused.status, allowed_origin(refused)) == (400, told)


def test_no_origin_is_allowed_unless_it_is_named(metrics_file, database):
    with forked_collector(metrics_file, database) as collector:
        asked = send(collector.url, "OPTIONS", "/v1/reports", headers=_ASKED | {"Origin": ALLOWED})
        assert (asked.status, allowed_origin(asked)) == (405, None)
