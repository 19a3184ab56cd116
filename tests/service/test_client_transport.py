"""One attempt to deliver, against servers that behave well and badly."""

import ast
import contextlib
import datetime as dt
import functools
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager

import pytest
import trustme

from factories import make_report
from http_servers import DRIP_SECONDS, Answer, dripping_server, scripted_server, tunnelling_proxy
from hubbub.client import Batch, Report
from hubbub.client.transport import (
    MAX_ANSWER,
    Answer as Verdict,
    DeliveryFailure,
    HttpSender,
    Outcome,
    classify_response,
    refusal_reason,
)
from hubbub.protocol import MEDIA_TYPE, batch_to_compact

DELIVERED, RETRY, REFUSED = Outcome.DELIVERED, Outcome.RETRY, Outcome.REFUSED
BATCH = Batch((make_report(bits=2**128 - 2),))
LONG = 20.0  # seconds: far more than a bound of 1 s takes on a busy machine, far less than a drip
assert LONG < DRIP_SECONDS / 2


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    """Whatever the machine's own environment says, a test sets what it is about."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def error_of(answer: Verdict) -> DeliveryFailure:
    """Return why a batch wasn't delivered, and will be tried again."""
    assert answer.outcome is RETRY
    assert answer.error is not None
    assert abs(answer.error.time - time.time()) < 600
    return answer.error


def in_time(send: Callable[[], Verdict]) -> DeliveryFailure:
    """Return why an attempt failed that ended long before what drips or hangs would have."""
    started = time.monotonic()
    answer = send()
    assert time.monotonic() - started < LONG
    return error_of(answer)


@functools.cache
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(host: str = "127.0.0.1") -> ssl.SSLContext:
    """Return a server's TLS with a certificate for a host, signed by an authority of our own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(host).configure_cert(context)
    return context


@pytest.fixture
def trusted(monkeypatch):
    with authority().cert_pem.tempfile() as path:
        monkeypatch.setenv("SSL_CERT_FILE", path)
        yield


@contextmanager
def blunt_server(words: bytes, *, reset: bool = False) -> Iterator[str]:
    """Read one request, say these words whatever it was, and hang up (or reset)."""

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            while not connection.recv(65_536).endswith(BATCH.reports[0].bits):
                pass
            connection.sendall(words)
            if reset:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@contextmanager
def blunt_port(words: bytes) -> Iterator[int]:
    """Say these words to the first connection, if there is one, after whatever it says first."""
    stop = threading.Event()

    def answer() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(10.0)
                    connection.recv(65_536)
                    connection.sendall(words)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stop.set()
            thread.join()


@contextmanager
def unreachable_port() -> Iterator[int]:
    """A port that nobody listens on, and that nobody else can take."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextmanager
def hanging_port() -> Iterator[int]:
    """A port that leaves new connections without an answer: the queue for it is full."""
    with contextlib.ExitStack() as queue:
        listener = queue.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = listener.getsockname()[1]
        for _ in range(64):
            waiting = queue.enter_context(socket.socket())
            waiting.settimeout(0.5)
            try:
                waiting.connect(("127.0.0.1", port))
            except TimeoutError:
                yield port
                return
    pytest.fail("the queue of connections never filled")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(201, b'{"accepted": 3}'), DELIVERED),
        (Answer(200, b'{"accepted": 3, "duplicate": true}'), DELIVERED),
        (Answer(200, b'{"ok": true}'), RETRY),
        (Answer(200, b"[]"), RETRY),
        (Answer(200, b"\xff\xfe"), RETRY),
        (Answer(200, b""), RETRY),
        (Answer(408), RETRY),
        (Answer(502), RETRY),
        (Answer(503), RETRY),
        (Answer(0), RETRY),
    ],
    ids=lambda value: f"{value.status} {value.body[:8]!r}" if isinstance(value, Answer) else "",
)
def test_outcome_of_an_answer(answer, outcome):
    with scripted_server(lambda _: answer) as server:
        assert HttpSender(server.url).send(BATCH).outcome is outcome
        assert len(server.received) == 1


def test_request_says_nothing_about_the_machine():
    with scripted_server() as server:
        HttpSender(server.url + "/").send(BATCH)
    (request,) = server.received
    assert request.path == "/v1/reports"
    assert request.body == batch_to_compact(BATCH)
    assert request.headers["Content-Type"] == MEDIA_TYPE
    assert request.headers["User-Agent"] == "hubbub"
    assert set(request.headers) <= {
        "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Host", "User-Agent"
    }  # fmt: skip


@pytest.mark.parametrize(
    "key", ["", " ", "a b", "a\r\nX: y", "a\n", "\x00", "gr\u00fcn", "=", "a=b", '"a"', b"a", 7]
)
def test_ingest_key_that_cannot_be_in_a_header_is_refused_and_not_quoted(key):
    with pytest.raises(ValueError, match=r"^ingest_key: must be letters, digits and ") as refusal:
        HttpSender("https://telemetry.example.com", ingest_key=key)
    assert str(refusal.value).endswith("-._~+/ alone, and = at the end")


def test_ingest_key_does_not_follow_a_redirect():
    with scripted_server() as other:
        elsewhere = Answer(307, b"", {"Location": f"{other.url}/v1/reports"})
        with scripted_server(lambda _: elsewhere) as server:
            assert HttpSender(server.url, ingest_key="key").send(BATCH).outcome is RETRY
    assert other.received == []


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
def test_retry_after_in_seconds_and_as_a_date(header, seconds):
    now = dt.datetime(2015, 10, 21, 7, 27, tzinfo=dt.UTC).timestamp()
    headers = {} if header is None else {"Retry-After": header}
    assert classify_response(429, headers, b"", now).retry_after == seconds
    assert classify_response(503, headers, b"", now).retry_after == seconds


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
def test_422_names_the_reports_that_are_refused(body, refused):
    answer = classify_response(422, {}, body, 0.0)
    assert (answer.outcome, answer.refused) == (REFUSED, refused)


def test_proxy_of_the_environment_is_used(monkeypatch):
    with scripted_server() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        answer = HttpSender("http://telemetry.example.com").send(BATCH)
    assert answer.outcome is DELIVERED
    assert proxy.received[0].path == "http://telemetry.example.com/v1/reports"


@pytest.mark.usefixtures("trusted")
def test_https_goes_through_a_proxy_that_sees_no_key(monkeypatch):
    with scripted_server(tls=server_context()) as server, tunnelling_proxy() as (proxy, asked):
        monkeypatch.setenv("https_proxy", f"http://arthur:dent@{proxy}")
        assert HttpSender(server.url, ingest_key="zaphod").send(BATCH) == Verdict(DELIVERED)
    assert asked == [f"{server.url.removeprefix('https://')} Basic YXJ0aHVyOmRlbnQ="]
    assert server.received[0].headers["Authorization"] == "Bearer zaphod"


def test_threads_share_a_sender():
    others_are_done = threading.Event()

    def hang_first(number: int) -> Answer:
        if number == 0:
            others_are_done.wait(DRIP_SECONDS)
        return Answer()

    with scripted_server(hang_first) as server, ThreadPoolExecutor(8) as pool:
        sender = HttpSender(server.url, timeout=DRIP_SECONDS)
        futures = as_completed([pool.submit(sender.send, BATCH) for _ in range(8)])
        answers = [next(futures).result() for _ in range(7)]
        others_are_done.set()
        answers.append(next(futures).result())
    assert answers == [Verdict(DELIVERED)] * 8


def test_importing_the_transport_imports_no_network_and_sending_imports_nothing_more():
    program = """
import sys
from hubbub.client.transport import HttpSender
from hubbub.protocol.wire import Batch, Report
early = sorted({"ssl", "socket", "http.client", "urllib.request"} & sys.modules.keys())
sender = HttpSender(sys.argv[1], timeout=30.0)
sender.prepare()
prepared = set(sys.modules)
batches = [Batch((Report("homepage", 1, 0, bytes(16)),) * count) for count in (1, 200, 1, 1)]
answers = [sender.send(batch) for batch in batches]
print([early, sorted(sys.modules.keys() - prepared), [a.error[0] for a in answers]])
"""
    script = [
        Answer(503, b"", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        Answer(422, b'{"errors": []}'),
        Answer(302, b"", {"Location": "https://portal.example.com/"}),
        Answer(0),
    ]
    with scripted_server(lambda number: script[number]) as server:
        child = subprocess.run(
            [sys.executable, "-c", program, server.url], capture_output=True, check=True, timeout=60
        )
    assert ast.literal_eval(child.stdout.decode()) == [
        [],
        [],
        ["status", "status", "redirect", "connection"],
    ]


_CHUNK = b"1\r\n \r\n"


@pytest.mark.parametrize(
    ("at_once", "drips"),
    [
        (b"", b"HTTP/1.1 201 " + b"Created" * 100),
        (b"HTTP/1.1 201 Created\r\n", b"X: y\r\n" * 100),
        (b"HTTP/1.1 201 Created\r\nX: ", b"y" * 600),
        (b"HTTP/1.1 201 Created\r\nContent-Length: 600\r\n\r\n", b" " * 600),
        (b"HTTP/1.1 201 Created\r\n\r\n", b" " * 600),
        (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n", _CHUNK * 100),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 30),
    ],
    ids=["status line", "headers", "a header", "body", "endless body", "chunks", "continue"],
)
def test_answer_that_drips_is_left_in_time(at_once, drips):
    with dripping_server(at_once, drips) as port:
        sender = HttpSender(f"http://127.0.0.1:{port}", timeout=1.0)
        error = in_time(lambda: sender.send(BATCH))
    assert error[:3] == ("timeout", "no complete answer in time", None)


@pytest.mark.usefixtures("trusted")
def test_answer_that_drips_through_tls_is_left_in_time():
    head = b"HTTP/1.1 201 Created\r\n"
    with dripping_server(head, b"X: y\r\n" * 100, tls=server_context()) as port:
        sender = HttpSender(f"https://127.0.0.1:{port}", timeout=1.0)
        error = in_time(lambda: sender.send(BATCH))
    assert error[:3] == ("timeout", "no complete answer in time", None)


def test_server_that_never_answers_is_left_in_time():
    released = threading.Event()

    def hang(_number: int) -> Answer:
        released.wait(DRIP_SECONDS)
        return Answer()

    with scripted_server(hang) as server:
        error = in_time(lambda: HttpSender(server.url, 0.2).send(BATCH))
        released.set()
    assert error.kind == "timeout"


def test_server_that_never_reads_is_left_in_time():
    """The body is random, so it stays large: larger than what the system's buffers hold."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = HttpSender(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=1.0)
        noise = os.urandom(512 * 40_000)
        reports = (noise[i : i + 512] for i in range(0, len(noise), 512))
        batch = Batch(tuple(Report("homepage", 1, 0, bits) for bits in reports))
        error = in_time(lambda: sender.send(batch))
    assert error.kind == "timeout"


def tls_flight(client_hello: bytes) -> bytes:
    """Return a server's real answer to the beginning of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context().wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(client_hello)
    with contextlib.suppress(ssl.SSLWantReadError):
        server.do_handshake()
    return outgoing.read()


@pytest.mark.usefixtures("trusted")
def test_tls_handshake_that_drips_is_left_in_time():
    with dripping_server(b"", tls_flight) as port:
        sender = HttpSender(f"https://127.0.0.1:{port}", timeout=1.0)
        error = in_time(lambda: sender.send(BATCH))
    assert error.kind == "timeout"


def test_tls_handshake_that_hangs_is_left_in_time():
    with socket.create_server(("127.0.0.1", 0)) as listener:  # which the system connects to
        endpoint = f"https://127.0.0.1:{listener.getsockname()[1]}"
        error = in_time(lambda: HttpSender(endpoint, 1.0).send(BATCH))
    assert error[:3] == ("timeout", "no complete answer in time", None)


@pytest.mark.parametrize(
    ("at_once", "drips"),
    [
        (b"", b"HTTP/1.0 200 " + b"Established" * 60),
        (b"HTTP/1.0 200 Connection established\r\n", b"X: y\r\n" * 100),
    ],
    ids=["status line", "headers"],
)
def test_proxy_whose_tunnel_drips_is_left_in_time(at_once, drips, monkeypatch):
    with dripping_server(at_once, drips) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        sender = HttpSender("https://telemetry.invalid", timeout=1.0)
        error = in_time(lambda: sender.send(BATCH))
    assert error[:3] == ("timeout", "no complete answer in time", None)


def resolve_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Let any name have several addresses, which no real name on one machine has."""
    addresses = [
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))
        for port in ports
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: addresses)


def test_addresses_that_hang_or_refuse_leave_time_for_the_one_that_answers(monkeypatch):
    with hanging_port() as hanging, unreachable_port() as closed, scripted_server() as server:
        resolve_to(monkeypatch, hanging, closed, int(server.url.rpartition(":")[2]))
        sender = HttpSender("http://telemetry.example.com", timeout=1.0)
        assert sender.send(BATCH) == Verdict(DELIVERED)


def test_certificates_are_trusted_if_the_system_trusts_them(monkeypatch):
    with scripted_server(tls=server_context()) as server:
        error = error_of(HttpSender(server.url).send(BATCH))
        assert error.kind == "TLS"
        assert error.detail.startswith("the certificate can't be trusted: unable to get local issu")
        assert server.received == []
        with authority().cert_pem.tempfile() as path:
            monkeypatch.setenv("SSL_CERT_FILE", path)
            assert HttpSender(server.url).send(BATCH) == Verdict(DELIVERED)


def test_app_that_trusts_anybody_does_not_make_telemetry_do_so(monkeypatch):
    monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_unverified_context)
    with scripted_server(tls=server_context()) as server:
        assert error_of(HttpSender(server.url).send(BATCH)).kind == "TLS"
    assert server.received == []


@pytest.mark.usefixtures("trusted")
def test_certificate_of_another_host_is_not_trusted():
    with scripted_server(tls=server_context("other.example.com")) as server:
        error = error_of(HttpSender(server.url).send(BATCH))
        assert server.received == []
    assert error.kind == "TLS"
    assert "certificate is not valid for '127.0.0.1'" in error.detail


def test_a_server_without_tls_is_named_as_such():
    with blunt_port(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        error = error_of(HttpSender(f"https://127.0.0.1:{port}").send(BATCH))
    assert error[:3] == ("TLS", "wrong version number", None)


@pytest.mark.parametrize("host", ["hubbub.invalid", "a..b", "x" * 70 + ".invalid"])
def test_a_host_name_that_does_not_exist_is_named(host):
    for scheme in ("http", "https"):
        error = error_of(HttpSender(f"{scheme}://{host}").send(BATCH))
        assert (error.kind, error.status) == ("DNS", None)
        assert error.detail


def test_a_refused_connection_means_try_again():
    with unreachable_port() as port:
        error = error_of(HttpSender(f"http://127.0.0.1:{port}").send(BATCH))
    assert error[:3] == ("connection", "Connection refused", None)


def test_connection_that_is_reset_means_try_again():
    with blunt_server(b"HTTP/1.1 201 Created\r\n", reset=True) as url:
        error = error_of(HttpSender(url).send(BATCH))
    assert error[:3] == ("connection", "Connection reset by peer", None)


@pytest.mark.parametrize(
    ("words", "detail"),
    [
        (b"", "RemoteDisconnected"),
        (b"\x00\x01\x02 not http at all\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 2", "BadStatusLine"),
        (b"HTTP/1.1 201 Created\r\n" + b"X: y\r\n" * 200 + b"\r\n", "HTTPException"),
        (b"HTTP/1.1 201 Created\r\nContent-Length: 20\r\n\r\n", "IncompleteRead"),
        (b'HTTP/1.1 201 Created\r\nContent-Length: 20\r\n\r\n{"accepted": 1}', "IncompleteRead"),
        (b'HTTP/1.1 422 No\r\nContent-Length: 90\r\n\r\n{"errors": [{"rep', "IncompleteRead"),
        (b"HTTP/1.1 422 No\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{", "IncompleteRead"),
    ],
    ids=["nothing", "not http", "status", "headers", "no body", "half 201", "half 422", "chunk"],
)
def test_answer_that_is_not_whole_means_try_again(words, detail):
    with blunt_server(words) as url:
        error = error_of(HttpSender(url).send(BATCH))
    assert error[:3] == ("connection", f"no complete HTTP answer ({detail})", None)


def test_answer_that_is_too_long_is_judged_by_its_beginning():
    with scripted_server(lambda _: Answer(503, b"x" * (MAX_ANSWER + 1))) as server:
        error = error_of(HttpSender(server.url).send(BATCH))
    assert error[:3] == ("status", "answered with status 503", 503)


_PROBLEM = b'{"detail": "4 reports can\'t be used", "errors": [7, {"report": 3}, %b]}'
_FIRST = b'{"report": 5, "detail": "reports[5].cohort = 99: must be between 0 and 63"}'
_KEY = "the ingest key is missing, unknown or expired"
_REFUSED = "refused by the collector"
_ADDRESS = "the address isn't a collector's"


@pytest.mark.parametrize(
    ("answer", "reason", "kind", "detail"),
    [
        (Answer(200, b"<html>Welcome to the hotel</html>"), None, "answer",
         "status 200 with another answer than a collector's"),
        (Answer(204, b""), None, "answer", "status 204 with another answer than a collector's"),
        (Answer(302, b"", {"Location": "https://a:b@portal.example.com:8080/login?from=c"}),
         None, "redirect", "redirected to portal.example.com"),
        (Answer(308, b"", {"Location": "/elsewhere"}), None, "redirect", "redirected"),
        (Answer(301, b"", {"Location": "https://[::1"}), None, "redirect", "redirected"),
        (Answer(307, b""), None, "redirect", "redirected"),
        (Answer(400), _REFUSED, "status", "answered with status 400"),
        (Answer(401), _REFUSED + ": ingest key", "status", _KEY),
        (Answer(403), _REFUSED + ": ingest key", "status", _KEY),
        (Answer(404), _REFUSED + ": no such address", "status", _ADDRESS),
        (Answer(405), _REFUSED + ": no such address", "status", _ADDRESS),
        (Answer(407), None, "status", "the proxy wants a login, or another one"),
        (Answer(413, b'{"detail": "body: must be at most 1048576 bytes"}'), _REFUSED, "status",
         "answered with status 413: body: must be at most 1048576 bytes"),
        (Answer(422, _PROBLEM % _FIRST), _REFUSED, "status",
         "answered with status 422: reports[5].cohort = 99: must be between 0 and 63"),
        (Answer(422, _PROBLEM % b"{}"), _REFUSED, "status",
         "answered with status 422: 4 reports can't be used"),
        (Answer(422, b'{"detail": "a\\nb\\u001b[31m%b"}' % (b"c" * 500)), _REFUSED, "status",
         "answered with status 422: a b [31m" + "c" * 192),
        (Answer(422, b'{"detail": 7}'), _REFUSED, "status", "answered with status 422"),
        (Answer(422, b"not json"), _REFUSED, "status", "answered with status 422"),
        (Answer(429, b""), None, "status", "answered with status 429"),
        (Answer(500, b"<html>"), None, "status", "answered with status 500"),
    ],
    ids=lambda value: f"{value.status} {value.body[:16]!r}" if isinstance(value, Answer) else "",
)  # fmt: skip
def test_answer_that_does_not_say_delivered_is_explained(answer, reason, kind, detail):
    """The reason is what a refusal is counted by; without one the batch is tried again."""
    with scripted_server(lambda _: answer) as server:
        before = time.time()
        verdict = HttpSender(server.url).send(BATCH)
    assert verdict.outcome is (REFUSED if reason else RETRY)
    assert reason in {None, refusal_reason(verdict)}
    assert len(server.received) == (2 if answer.status in {400, 403} else 1)  # in both forms
    assert verdict.error is not None
    assert verdict.error[:3] == (kind, detail, answer.status)
    assert before <= verdict.error.time <= time.time()


@pytest.mark.parametrize(
    ("proxy", "kind", "detail"),
    [
        ("http://arthur:dent@{}", "connection", "the proxy refused a tunnel, with status 407"),
        ("http://arthur:dent@", "connection", "no complete HTTP answer ("),
        ("http://arthur:dent@{}x", "connection", "no complete HTTP answer ("),
        ("http://arthur:dent@proxy.invalid:3128", "DNS", ""),
    ],
    ids=["refuses", "no host", "no port", "unknown"],
)
def test_login_and_key_are_not_in_the_error(proxy, kind, detail, monkeypatch):
    words = b"HTTP/1.0 407 dent\r\nContent-Length: 0\r\n\r\n"
    with blunt_port(words) as port:
        monkeypatch.setenv("https_proxy", proxy.format(f"127.0.0.1:{port}"))
        sender = HttpSender("https://telemetry.invalid", ingest_key="zaphod")
        answer = sender.send(BATCH)
    error = error_of(answer)
    assert (error.kind, error.status) == (kind, None)
    assert error.detail.startswith(detail)
    assert not {"arthur", "dent", "zaphod"} & set(error.detail.replace(":", " ").split())
