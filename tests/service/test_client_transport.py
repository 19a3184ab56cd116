"""One attempt to deliver, against servers that behave well and badly."""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import socket
import ssl
import threading
import time

import pytest
import trustme

from http_servers import Answer, scripted_server
from hubbub.client.transport import UNREACHABLE, HttpSender, Outcome, judge
from hubbub.client.transport import Answer as Verdict

DELIVERED, RETRY, REFUSED = Outcome.DELIVERED, Outcome.RETRY, Outcome.REFUSED


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(201, b'{"accepted": 3}'), DELIVERED),
        (Answer(200, b'{"accepted": 3, "duplicate": true}'), DELIVERED),
        (Answer(200, b"<html>Welcome to the hotel</html>"), RETRY),
        (Answer(200, b'{"ok": true}'), RETRY),
        (Answer(200, b"[]"), RETRY),
        (Answer(200, b"\xff\xfe"), RETRY),
        (Answer(200, b""), RETRY),
        (Answer(302, b"", {"Location": "/elsewhere"}), RETRY),
        (Answer(307, b"", {"Location": "/elsewhere"}), RETRY),
        (Answer(308, b"", {"Location": "/elsewhere"}), RETRY),
        (Answer(400), REFUSED),
        (Answer(401), REFUSED),
        (Answer(404), REFUSED),
        (Answer(408), RETRY),
        (Answer(413), REFUSED),
        (Answer(422), REFUSED),
        (Answer(429), RETRY),
        (Answer(500), RETRY),
        (Answer(502), RETRY),
        (Answer(503), RETRY),
        (Answer(0), RETRY),
    ],
    ids=lambda value: f"{value.status} {value.body[:8]!r}" if isinstance(value, Answer) else "",
)
def test_outcome_of_an_answer(answer: Answer, outcome: Outcome) -> None:
    with scripted_server(lambda _: answer) as server:
        assert HttpSender(server.url).send(b"{}").outcome is outcome
        assert len(server.received) == 1


def test_request_says_nothing_about_the_machine() -> None:
    with scripted_server() as server:
        HttpSender(server.url + "/").send(b'{"some": "body"}')
    (request,) = server.received
    assert request.path == "/v1/reports"
    assert request.body == b'{"some": "body"}'
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["User-Agent"] == "hubbub"
    assert set(request.headers) <= {
        "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Host", "User-Agent"
    }  # fmt: skip


def test_ingest_key_is_presented_with_small_and_large_batches() -> None:
    with scripted_server() as server:
        sender = HttpSender(server.url, ingest_key="hub_ingest_Zaphod-7~=")
        sender.send(b"{}")
        sender.send(b"{}" + b" " * 5000)
    for request in server.received:
        assert request.headers["Authorization"] == "Bearer hub_ingest_Zaphod-7~="


@pytest.mark.parametrize(
    "key", ["", " ", "a b", "a\r\nX: y", "a\n", "\x00", "gr\u00fcn", "=", "a=b", '"a"', b"a", 7]
)
def test_ingest_key_that_cannot_be_in_a_header_is_refused_and_not_quoted(key: str) -> None:
    with pytest.raises(ValueError, match=r"^ingest_key: must be letters, digits and ") as refusal:
        HttpSender("https://telemetry.example.com", ingest_key=key)
    assert str(refusal.value).endswith("-._~+/ alone, and = at the end")


def test_ingest_key_does_not_follow_a_redirect() -> None:
    with scripted_server() as other:
        elsewhere = Answer(307, b"", {"Location": f"{other.url}/v1/reports"})
        with scripted_server(lambda _: elsewhere) as server:
            assert HttpSender(server.url, ingest_key="key").send(b"{}").outcome is RETRY
    assert other.received == []


def test_nobody_listening_means_try_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        port = taken.getsockname()[1]
        assert HttpSender(f"http://127.0.0.1:{port}").send(b"{}") == UNREACHABLE


def test_server_that_never_answers_is_left_after_the_timeout() -> None:
    released = threading.Event()

    def hang(_number: int) -> Answer:
        released.wait(20)
        return Answer()

    with scripted_server(hang) as server:
        started = time.monotonic()
        answer = HttpSender(server.url, read_timeout=0.2).send(b"{}")
        elapsed = time.monotonic() - started
        released.set()
    assert answer == UNREACHABLE
    assert elapsed < 10


@pytest.mark.parametrize("noise", [b"\x00\x01\x02 not http at all\r\n\r\n", b"HTTP/1.1 2"])
def test_answer_that_is_not_http_means_try_again(noise: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(noise)

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        assert HttpSender(f"http://127.0.0.1:{port}").send(b"{}") == UNREACHABLE
        thread.join()


def test_answer_that_drips_is_left_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(100):
                    connection.sendall(b" ")
                    time.sleep(0.1)

        thread = threading.Thread(target=drip)
        thread.start()
        sender = HttpSender(f"http://127.0.0.1:{listener.getsockname()[1]}", read_timeout=0.5)
        started = time.monotonic()
        assert sender.send(b"{}") == UNREACHABLE
        assert time.monotonic() - started < 5
        thread.join()


def test_large_body_is_compressed_and_a_small_one_is_not() -> None:
    small, large = b"{}" + b" " * 500, b"{}" + b" " * 5000
    with scripted_server() as server:
        HttpSender(server.url).send(small)
        HttpSender(server.url).send(large)
    first, second = server.received
    assert first.body == small
    assert "Content-Encoding" not in first.headers
    assert gzip.decompress(second.body) == large
    assert second.headers["Content-Encoding"] == "gzip"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 60.0),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_in_seconds_and_as_a_date(header: str | None, seconds: float | None) -> None:
    now = dt.datetime(2015, 10, 21, 7, 27, tzinfo=dt.UTC).timestamp()
    headers = {} if header is None else {"Retry-After": header}
    assert judge(429, headers, b"", now).retry_after == seconds
    assert judge(503, headers, b"", now).retry_after == seconds


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b'{"errors": [{"report": 3}, {"report": 0}]}', (3, 0)),
        (b'{"errors": [{"report": true}, {"report": -1}, {"report": "1"}, 7, {}]}', ()),
        (b'{"errors": {"report": 3}}', ()),
        (b'{"detail": "reports[3].cohort"}', ()),
        (b"[" * 50_000, ()),
        (b"not json", ()),
    ],
)
def test_422_names_the_reports_that_are_refused(body: bytes, refused: tuple[int, ...]) -> None:
    assert judge(422, {}, body, 0.0) == Verdict(REFUSED, refused=refused)


def test_tls_certificate_is_verified() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with scripted_server(tls=context) as server, pytest.MonkeyPatch.context() as patch:
        assert HttpSender(server.url).send(b"{}") == UNREACHABLE
        assert server.received == []
        with authority.cert_pem.tempfile() as path:
            patch.setenv("SSL_CERT_FILE", path)
            assert HttpSender(server.url).send(b"{}").outcome is DELIVERED


def test_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_server() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        answer = HttpSender("http://telemetry.example.com").send(b"{}")
    assert answer.outcome is DELIVERED
    assert proxy.received[0].path == "http://telemetry.example.com/v1/reports"


@pytest.mark.parametrize("endpoint", ["ftp://example.com", "example.com", "file:///etc/passwd", ""])
def test_endpoint_must_be_http(endpoint: str) -> None:
    with pytest.raises(ValueError, match="must start with https:// or http://"):
        HttpSender(endpoint)
