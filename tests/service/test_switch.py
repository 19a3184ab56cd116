"""A switch on its way: from the command through a collector, or any host, to real clients."""

import contextlib
import datetime as dt
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from factories import APPLICATION, make_metric, make_params, make_registry, registry_toml
from http_servers import scripted_server
from hubbub.client import Telemetry
from hubbub.client.outbox import DATABASE
from hubbub.client.schedule import SWITCHED_OFF
from hubbub.collector import main
from hubbub.protocol import Rate, SigningKey, SwitchDocument, registry_json
from programs import forked_collector
from service.posting import stored_count, wait_until
from unit.javascript.node import CLIENT, run_node

HOMEPAGE, THEME = make_metric(), make_metric("theme", params=make_params(m=1))
REGISTRY = make_registry(HOMEPAGE, THEME)
KEY = SigningKey(bytes(range(32)))
SECONDS = 60


@pytest.fixture
def metrics(tmp_path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(HOMEPAGE, THEME), encoding="utf-8")
    return path


@pytest.fixture
def taking() -> Iterator[str]:
    """Return the address of a server that acknowledges whatever it gets."""
    with scripted_server() as server:
        yield server.url


def command(*arguments: object) -> Result:
    """Run the collector's command in this process."""
    return CliRunner().invoke(main, list(map(str, arguments)))


def document(*off: str, issued: str = "2026-11-27T09:30:00Z") -> bytes:
    rates = tuple(Rate(name, None, 0.0) for name in off)
    return SwitchDocument(APPLICATION, issued, rates).to_json()


@dataclass
class Host:
    """A host of one file, which keeps what it was asked, byte by byte."""

    answer: bytes
    url: str = ""
    requests: list[bytes] = field(default_factory=list)


def found(body: bytes, head: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (len(body), head) + body


@contextmanager
def hosting(answer: bytes) -> Iterator[Host]:
    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(SECONDS)
                request = b""
                while not request.endswith(b"\r\n\r\n"):
                    request += connection.recv(65_536)
                host.requests.append(request)
                connection.sendall(host.answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        host = Host(answer, f"http://127.0.0.1:{port}/files/switch")
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield host
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def let_a_day_pass(state: Path) -> None:
    with closing(sqlite3.connect(state / DATABASE)) as connection:
        connection.execute("UPDATE switch SET asked = asked - 86400")
        connection.commit()


def get(url: str) -> tuple[bytes, dict[str, str]]:
    with urllib.request.urlopen(url, timeout=SECONDS) as response:
        return response.read(), dict(response.headers)


def test_metric_is_turned_off_and_on_by_a_command_and_a_collector(tmp_path, metrics, database):
    """The client sends, asks, drops; and a day later it asks, as all is off, and sends again."""

    def switch(*arguments: str) -> str:
        done = command("switch", *arguments, "--metrics", metrics, "--switch", file)
        assert done.exit_code == 0, done.output
        return done.stdout

    file, state = tmp_path / "switch", tmp_path / "state"
    private = tmp_path / "private"
    public = command("token", "--switch", private).stdout.strip()
    switch("set", "homepage", "off", "--key", str(private))
    options = ["--switch", str(file)]
    client: dict[str, Any] = {"switch": True, "switch_key": public}
    with forked_collector(metrics, database, options) as collector:
        with Telemetry(REGISTRY, collector.url, state, **client) as telemetry:
            telemetry.record("homepage", "a")
            assert telemetry.flush(SECONDS)
            telemetry.record("homepage", "b")
            telemetry.record("theme", "c")
            assert telemetry.flush(SECONDS)
            assert telemetry.preview("homepage", "b").refusal == SWITCHED_OFF
            status = telemetry.status()
        assert (status.delivered, status.dropped) == (2, {SWITCHED_OFF: 1})
        with Telemetry(REGISTRY, collector.url, state, **client) as telemetry:
            telemetry.record("homepage", "b")  # as it was, without asking again
            assert telemetry.status().dropped == {SWITCHED_OFF: 1}
        said = switch("set", "homepage", "on", "--key", str(private))
        collector.process.send_signal(signal.SIGHUP)
        wait_until(lambda: get(f"{collector.url}/v1/switch")[0] == file.read_bytes())
        let_a_day_pass(state)
        with Telemetry(REGISTRY, collector.url, state, **client) as telemetry:
            telemetry.record("homepage", "b")
            assert telemetry.flush(SECONDS)
            telemetry.record("homepage", "b")
            assert telemetry.flush(SECONDS)
            assert telemetry.status().delivered == 1
    assert said.endswith("signed\n")
    assert stored_count(database, HOMEPAGE) == 2
    assert stored_count(database, THEME) == 1


PAGE = """
import { readFileSync } from "node:fs";
import { Telemetry } from "./hubbub.js";
const texts = new Map();
const storage = { get: (key) => texts.get(key), set: (key, text) => texts.set(key, text) };
const telemetry = new Telemetry({ ...JSON.parse(readFileSync(0)), storage, switch: true });
telemetry.record("homepage", "a");
await telemetry.flush();
telemetry.record("homepage", "b");
telemetry.record("theme", "c");
await telemetry.flush();
console.log(JSON.stringify(telemetry.status()));
await telemetry.close();
"""


def test_javascript_client_obeys_the_same_file(tmp_path, metrics, database):
    file, program = tmp_path / "switch", tmp_path / "page.mjs"
    file.write_bytes(KEY.sign(document("homepage")))
    program.write_text(PAGE.replace("./hubbub.js", str(CLIENT / "src" / "index.js")), "utf-8")
    registry = json.loads(registry_json(metrics))
    with forked_collector(metrics, database, ["--switch", str(file)]) as collector:
        options: dict[str, Any] = {
            "registry": registry,
            "endpoint": collector.url,
            "switchKey": str(KEY.public),
        }
        done = run_node(program, stdin=json.dumps(options))
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    assert (status["delivered"], status["dropped"]) == (2, {SWITCHED_OFF: 1})
    assert (stored_count(database, HOMEPAGE), stored_count(database, THEME)) == (1, 1)


def test_reports_that_wait_are_dropped_when_a_metric_turns_out_to_be_off(tmp_path, taking):
    state = tmp_path / "state"
    many = make_registry(HOMEPAGE, make_metric("search"))  # whose cohorts share no batch
    with hosting(found(document("search"))) as host:
        with Telemetry(many, taking, state, switch=host.url) as telemetry:
            telemetry.record("homepage", "a")
            telemetry.record("search", "b")
            assert telemetry.flush(SECONDS)
            assert telemetry.status().delivered == 1
            assert telemetry.status().dropped == {SWITCHED_OFF: 1}
        assert len(host.requests) == 1


WRONG = {
    "nobody answers": b"",
    "not found": b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "redirected": b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
    "malformed": found(document("homepage")[:-3]),
    "too long": found(document("homepage").ljust(70_000)),
    "cut off": found(document("homepage"))[:-3],
    "unsigned": found(document("homepage")),
    "wrongly signed": found(SigningKey(bytes(32)).sign(document("homepage"))),
    "another application": found(KEY.sign(document("homepage").replace(b"com.", b"org."))),
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG)
def test_client_that_gets_no_switch_that_it_may_obey_goes_on(tmp_path, taking, answer):
    state = tmp_path / "state"
    with hosting(answer) as host:
        options: dict[str, Any] = {"switch": host.url, "switch_key": str(KEY.public)}
        with Telemetry(make_registry(), taking, state, **options) as telemetry:
            for value in "ab":
                telemetry.record("homepage", value)
                assert telemetry.flush(SECONDS)
            assert (telemetry.status().delivered, telemetry.status().dropped) == (2, {})
        # Once a day, also after a failure, and no redirect.
        assert len(host.requests) == 1


def test_signed_switch_of_yesterday_is_not_replayed(tmp_path, taking):
    state = tmp_path / "state"
    with hosting(found(KEY.sign(document("homepage")))) as host:
        options: dict[str, Any] = {
            "switch": host.url,
            "switch_key": str(KEY.public),
            "batch_seconds": 0.1,
        }
        two = make_registry(HOMEPAGE, make_metric("search"))
        with Telemetry(two, taking, state, **options) as telemetry:
            telemetry.record("homepage", "a")
            assert telemetry.flush(SECONDS)
        host.answer = found(KEY.sign(document(issued="2026-11-27T09:29:59Z")))
        let_a_day_pass(state)
        with Telemetry(two, taking, state, **options) as telemetry:
            telemetry.record("homepage", "a")  # all that there is; so it asks without sending
            assert telemetry.flush(SECONDS)
            wait_until(lambda: len(host.requests) == 2)
            telemetry.record("homepage", "a")
            assert telemetry.status().dropped == {SWITCHED_OFF: 2}


def test_client_that_sends_nothing_asks_nothing(tmp_path):
    with hosting(found(document())) as host:
        with Telemetry(
            make_registry(), "http://127.0.0.1:9", tmp_path, switch=host.url
        ) as telemetry:
            assert telemetry.flush(SECONDS)
            telemetry.record("homepage", "a")
            assert not telemetry.flush(0.5)  # nobody is there
        assert host.requests == []


def test_requests_of_all_clients_are_the_same_and_say_nothing(tmp_path, taking):
    """Byte by byte, also after an answer that tries to mark a client; and they carry no key."""
    marks = b'Set-Cookie: id=1\r\nETag: "1"\r\nLast-Modified: Fri, 27 Nov 2026 00:00:00 GMT\r\n'
    with hosting(found(document(), marks)) as host:
        for name in ("one", "other"):
            for _ in range(2):
                with Telemetry(
                    make_registry(),
                    taking,
                    tmp_path / name,
                    switch=host.url,
                    ingest_key="hub_ingest_x",
                ) as telemetry:
                    telemetry.record("homepage", name)
                    assert telemetry.flush(SECONDS)
                let_a_day_pass(tmp_path / name)
        assert len(host.requests) == 4
        (request,) = set(host.requests)
    fields = dict(line.split(": ", 1) for line in request.decode().splitlines()[1:-1])
    assert request.startswith(b"GET /files/switch HTTP/1.1\r\n")
    assert fields.pop("Connection", "close") == "close"
    assert fields.pop("Accept", "*/*") == "*/*"
    assert fields.pop("Host") in host.url
    assert fields == {"User-Agent": "hubbub", "Accept-Encoding": "identity"}


def test_collector_without_a_switch_has_none(collector):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{collector.url}/v1/switch")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"{", "switch: must be JSON, in UTF-8"),
        (
            document("theme").replace(b"0.0", b"1.0"),
            "rates[0].rate = 1.0: must be 0, or a number from",
        ),
        (document().replace(b"com.", b"org."), "application = 'org.example.browser': must be"),
    ],
)
def test_collector_does_not_start_with_a_wrong_switch(
    tmp_path, metrics, database, content, message
):
    file = tmp_path / "switch"
    if content is not None:
        file.write_bytes(content)
    options = ("--metrics", metrics, "--store", f"sqlite:///{database}", "--switch", file)
    done = command("serve", "--port", 0, *options)
    assert done.exit_code == 1
    assert f"Error: {file}: {message}" in done.stderr


def test_wrong_switch_fails_a_reload(tmp_path, metrics, database):
    file, token = tmp_path / "switch", command("token", "--admin")
    file.write_bytes(document())
    config = tmp_path / "collector.toml"
    config.write_text(f'switch = "{file}"\nadmin_port = 0\n{token.stderr}', encoding="utf-8")
    with forked_collector(metrics, database, ["--config", str(config)]) as collector:
        request = urllib.request.Request(
            f"{collector.read_admin_url()}/metrics",
            headers={"Authorization": f"Bearer {token.stdout.strip()}"},
        )

        def switch() -> tuple[bytes, dict[str, str]]:
            return get(f"{collector.url}/v1/switch")

        def failing() -> float:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                lines = response.read().decode().splitlines()
            (line,) = (it for it in lines if it.startswith("hubbub_reload_failing "))
            return float(line.split()[1])

        assert failing() == 0
        assert not {"ETag", "Last-Modified", "Set-Cookie", "Vary"} & switch()[1].keys()
        assert switch()[1]["Cache-Control"] == "max-age=300"
        file.write_bytes(b"off")
        collector.process.send_signal(signal.SIGHUP)
        wait_until(lambda: failing() == 1)
        assert switch()[0] == document()
        file.write_bytes(document("theme"))
        collector.process.send_signal(signal.SIGHUP)
        wait_until(lambda: failing() == 0)
        wait_until(lambda: switch()[0] == document("theme"))


def test_command_needs_a_key_for_a_signed_file_and_names_what_there_is(tmp_path, metrics):
    file = tmp_path / "switch"
    file.write_bytes(KEY.sign(document("theme")))
    options = ("--metrics", metrics, "--switch", file)
    done = command("switch", "set", "homepage", "off", *options)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"Error: {file}: is signed; give --key to sign it again\n"
    done = command("switch", "set", "page", "off", *options)
    assert done.stderr == "Error: metric 'page': must be one of: homepage, theme\n"
    assert file.read_bytes() == KEY.sign(document("theme"))
    done = command("switch", "show", "--switch", file, "--public", KEY.public)
    assert done.stdout.splitlines()[0] == "theme, all versions: off"


def test_each_file_is_issued_later_than_the_one_before(tmp_path, metrics):
    """Also if the clock that the one before was issued by was ahead: clients go by it."""
    file = tmp_path / "switch"
    ahead = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(hours=12)
    file.write_bytes(document(issued=f"{ahead:%Y-%m-%dT%H:%M:%SZ}"))
    done = command("switch", "set", "theme", ".1", "--metrics", metrics, "--switch", file)
    assert done.exit_code == 0
    found_ = json.loads(file.read_bytes())
    assert found_["issued"] == f"{ahead + dt.timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    assert found_["rates"] == [{"metric": "theme", "rate": 0.1}]


@pytest.mark.parametrize("issued", ["9999-12-31T00:00:00Z", "2026-02-30T00:00:00Z"])
def test_no_file_is_written_after_one_that_no_client_obeys(tmp_path, metrics, issued):
    file = tmp_path / "switch"
    file.write_bytes(document(issued=issued))
    done = command("switch", "set", "theme", "off", "--metrics", metrics, "--switch", file)
    assert done.exit_code == 1
    assert f"issued = '{issued}': must be " in done.stderr
    assert file.read_bytes() == document(issued=issued)


@pytest.mark.parametrize("rate", ["1e-12", "1", "-.5", "nan"])
def test_rate_that_would_single_clients_out_is_not_written(tmp_path, metrics, rate):
    file = tmp_path / "switch"
    done = command("switch", "set", "--metrics", metrics, "--switch", file, "--", "theme", rate)
    assert done.exit_code == 2
    assert f"RATE = {rate!r}: must be on, off, or a number from 0.001 to below 1" in done.stderr
    assert not file.exists()


def test_only_an_app_with_a_key_imports_the_cryptography(tmp_path):
    """Nor does any other import what reads a switch, which most apps never get."""
    program = (
        "import sys; from hubbub.client import Telemetry\n"
        f"with Telemetry({str(tmp_path / 'm.toml')!r}, 'http://127.0.0.1:9', {str(tmp_path)!r},"
        " switch=True) as t: pass\n"
        "assert not {'cryptography', 'hubbub.protocol.switch'} & set(sys.modules)"
    )
    (tmp_path / "m.toml").write_text(registry_toml(), encoding="utf-8")
    subprocess.run([sys.executable, "-c", program], check=True, timeout=SECONDS)
