"""The standing report as a process: webhooks that fail, kills, and signals."""

import datetime as dt
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import programs
from http_servers import Answer, scripted_server
from unit.decoder.test_watching import LAST, Folder

_REPORT = "catch_up = 3\ndays = 2\nleave_out = ['words']\n"


@pytest.fixture
def folder(tmp_path) -> Folder:
    folder = Folder(tmp_path, _REPORT)
    folder.fill()
    return folder


def _ask(folder: Folder, *more: str) -> list[str]:
    return ["watch", str(folder.file), *more]


def test_a_webhook_is_called_until_it_succeeds_once(folder):
    """503 at first: the exit code is 1, and the next run tells it; later runs say nothing."""
    folder.watch(code=3)
    with scripted_server(lambda number: Answer(503 if number == 0 else 200)) as server:
        folder.write(
            f'{_REPORT}webhooks = ["{server.url}/secret"]\nurl = "https://results.example"\n'
        )
        _, errors = folder.watch(code=1)
        assert "answered 503" in errors
        assert "secret" not in errors
        folder.watch(code=3)
        folder.watch(code=3)
    first, again, other = server.received
    assert first.body == again.body
    assert json.loads(again.body)["day"] == f"{LAST - dt.timedelta(days=1)}"
    message = json.loads(other.body)
    assert message["report"] == "theme"
    assert {each["level"] for each in message["findings"]} == {"warning"}
    assert "- `c is new" in message["text"]
    assert message["link"] == f"https://results.example/theme/{message['day']}.html"
    assert b"secret" not in b"".join(folder.files().values())


def test_webhook_follows_no_redirect(folder):
    folder.watch(code=3)
    with scripted_server() as elsewhere:
        to = Answer(302, b"", {"Location": f"{elsewhere.url}/x"})
        with scripted_server(lambda _number: to) as server:
            folder.write(f'{_REPORT}webhooks = ["{server.url}"]\n')
            _, errors = folder.watch(code=1)
    assert "answered 302" in errors
    assert elsewhere.received == []


def test_webhook_that_speaks_no_http_is_a_fault(folder):
    """Whatever it says; and one that says nothing is given up in time."""
    folder.watch(code=3)
    for said in (b"SSH-2.0-foo\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=_say, args=(server, said))
            thread.start()
            port = server.getsockname()[1]
            folder.write(f'{_REPORT}webhooks = ["http://localhost:{port}/secret"]\n')
            _, errors = folder.watch(code=1)
            thread.join()
        assert "localhost: not reached" in errors
        assert "secret" not in errors


def _say(server: socket.socket, said: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(said)


def test_kill_leaves_whole_results(folder):
    """Killed at many moments, it ends up with what an undisturbed run makes."""
    for milliseconds in range(50, 1_050, 200):
        command = _ask(folder, "--once", "--until", f"{LAST}")
        with programs.start("hubbub.decoder", *command) as process:
            time.sleep(milliseconds / 1000)
            process.kill()
    folder.watch(code=3)
    made = {
        name: data
        for name, data in folder.files().items()
        if not name.split("/")[-1].startswith(".")
    }
    for name in made:
        (folder.path / "results" / name).unlink()
    folder.watch(code=3)
    assert {name: folder.files()[name] for name in made} == made


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_waiting_process_ends_at_a_signal(folder, number):
    """It does what is due, of which the store has nothing, then waits for tomorrow."""
    command = [sys.executable, "-m", "hubbub.decoder", *_ask(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    index = folder.path / "results" / "index.html"
    deadline = time.monotonic() + 60
    while not index.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert index.exists()
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.fullmatch(r"note: no results yet: .* is due at .* UTC\n", errors)
