"""One attempt to deliver, against servers that behave well and badly."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from http_servers import Answer, scripted_server
from hubbub.client.transport import HttpSender, Outcome

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
        assert HttpSender(server.url, timeout=5).send(b"{}") is outcome
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


def test_nobody_listening_means_try_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        port = taken.getsockname()[1]
        assert HttpSender(f"http://127.0.0.1:{port}", timeout=5).send(b"{}") is RETRY


def test_server_that_never_answers_is_left_after_the_timeout() -> None:
    released = threading.Event()

    def hang(_number: int) -> Answer:
        released.wait(20)
        return Answer()

    with scripted_server(hang) as server:
        started = time.monotonic()
        outcome = HttpSender(server.url, timeout=0.2).send(b"{}")
        elapsed = time.monotonic() - started
        released.set()
    assert outcome is RETRY
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
        assert HttpSender(f"http://127.0.0.1:{port}", timeout=5).send(b"{}") is RETRY
        thread.join()


@pytest.mark.parametrize("endpoint", ["ftp://example.com", "example.com", "file:///etc/passwd", ""])
def test_endpoint_must_be_http(endpoint: str) -> None:
    with pytest.raises(ValueError, match="must start with https:// or http://"):
        HttpSender(endpoint)
