"""The programs in docs/examples, run as their README says: reports arrive once, no value leaves.

Servers listen on sockets that the tests open, so that requests wait until a server is up.
"""

import base64
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from http_servers import Answer, ScriptedServer, scripted_server
from hubbub.client import Registry, Telemetry
from service.apps import NOWHERE, contents_by_id
from service.posting import send, wait_until

SOURCE = Path(__file__).parents[2] / "docs" / "examples"
BIN = Path(sys.executable).parent
SECONDS = 120.0
GOOD = '{"title": "Home", "text": "Welcome"}'
BAD = ("{", "{}")  # the one fails in json.decoder, the other in wiki
STRING_VALUES = ("json.decoder", "unheard-of-editor", "news.example.org")
VALUES = (*STRING_VALUES, "sqlite")


class Machine:
    """A copy of the examples, a home, and what processes find in their environment."""

    def __init__(self, folder: Path, registry: str, url: str = NOWHERE) -> None:
        self.examples, self.home = folder / "examples", folder / "home"
        shutil.copytree(SOURCE, self.examples, ignore=shutil.ignore_patterns("__pycache__"))
        for path in self.examples.glob("*.toml"):  # no test should break on a day
            text = path.read_text(encoding="utf-8")
            path.write_text(re.sub("expires = .{10}", "expires = 2099-12-31", text), "utf-8")
        self.registry = Registry.load(self.examples / registry)
        self.state = self.home / "telemetry"
        self.log = folder / "log"
        clean = {
            k: v for k, v in os.environ.items() if k not in {"DO_NOT_TRACK", "HUBBUB_DISABLED"}
        }
        homes = dict.fromkeys(["HOME", "WIKI_HOME", "NOTES_HOME", "BROWSER_HOME"], str(self.home))
        self.environment = clean | homes | {"EDITOR": "/opt/unheard-of-editor --wait"}
        self.connect(url)

    def connect(self, url: str) -> None:
        """Let what is started from now on report to this address."""
        self.url = url
        for app in ("WIKI", "NOTES", "BROWSER"):
            self.environment[f"{app}_COLLECTOR"] = url

    @contextmanager
    def started(
        self, program: str, *arguments: str, listener: socket.socket | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Run an installed program, or Python; it is killed if it hasn't ended in the context."""
        with (
            self.log.open("w", encoding="utf-8") as log,
            subprocess.Popen(
                [BIN / program, *arguments],
                cwd=self.examples.parent,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=[] if listener is None else [listener.fileno()],
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def run(self, script: str, *arguments: str, stdin: str = "") -> str:
        """Run one of the examples to its end; return what it says."""
        with self.started("python", str(self.examples / script), *arguments) as process:
            output, _ = process.communicate(stdin, timeout=SECONDS)
        assert process.returncode == 0, self.log.read_text(encoding="utf-8")
        return output

    def run_at_terminal(self, script: str, *arguments: str, keys: str) -> str:
        """Run one of the examples where its standard input is a terminal."""
        leader, follower = pty.openpty()
        try:
            os.write(leader, keys.encode())
            done = subprocess.run(
                [sys.executable, self.examples / script, *arguments],
                env=self.environment,
                stdin=follower,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=True,
            )
        finally:
            os.close(leader)
            os.close(follower)
        return done.stdout

    def reports_paid_for(self) -> Counter[str]:
        """Return how many reports of each metric ever reached this machine's disk."""
        spending = Telemetry(self.registry, NOWHERE, self.state, consent=False).ledger()
        return Counter({metric.metric: metric.reports for metric in spending.metrics})

    def settle(self) -> None:
        """Send what a program had to leave for its next start, on a machine as busy as this."""
        with Telemetry(self.registry, self.url, self.state) as telemetry:
            assert telemetry.flush(SECONDS)
            assert telemetry.status().waiting == 0

    def has_stored(self, text: str) -> bool:
        contents = bytearray()
        for path in self.state.iterdir():
            with contextlib.suppress(FileNotFoundError):  # a log that SQLite has just finished
                contents += path.read_bytes()
        assert contents
        return text.encode() in contents


def arrived(server: ScriptedServer, machine: Machine) -> Counter[str]:
    """Count reports by metric; an error if one came twice, or with more than a report has."""
    assert all(len(contents) == 1 for contents in contents_by_id(server).values())
    for request in server.received:
        batch = request.batch
        assert batch.keys() == {"batch_id", "reports"}
        for report in batch["reports"]:
            assert report.keys() == {"metric", "version", "cohort", "bits"}
            params = machine.registry[report["metric"]].params
            assert 0 <= report["cohort"] < params.m
            assert len(base64.b64decode(report["bits"], validate=True)) == params.k // 8
        words = f"{request.path} {dict(request.headers)} {json.dumps(batch)}"
        assert not [value for value in VALUES if value in words]
    return Counter(report["metric"] for report in server.reports)


def stop(process: subprocess.Popen[str]) -> None:
    """End a server as its supervisor would."""
    process.terminate()
    assert process.wait(SECONDS) in {0, -signal.SIGTERM}


def address_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def render_pages(url: str, bad: int) -> None:
    """Ask for some pages at once, one of which is good."""

    def status(source: str) -> int:
        return send(url, "POST", "/render", source.encode()).status

    sources = [GOOD, *(BAD[i % 2] for i in range(bad))]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(status, sources)) == [200] + [500] * bad


def agree(machine: Machine, yes: str = "yes") -> None:
    words = machine.run("wiki.py", stdin=f"{yes}\n")
    assert "What com.example.wiki asks" in words
    assert "This would not be sent: no consent" in words
    assert not machine.state.exists()


@contextmanager
def flask_workers(machine: Machine, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with listening() as listener:
        arguments = ["--chdir", str(machine.examples), "--workers", "2", *options]
        bind = ["--bind", f"fd://{listener.fileno()}"]
        with machine.started(
            "gunicorn", *arguments, *bind, "flask_app:app", listener=listener
        ) as process:
            yield process, address_of(listener)


@pytest.mark.parametrize(("options", "imports"), [([], 2), (["--preload"], 1)])
def test_flask_workers_share_one_client_and_send_each_report_once(tmp_path, options, imports):
    """The app is imported by each worker, or by the parent, whose report no child sends again."""
    with scripted_server() as server:
        machine = Machine(tmp_path, "wiki.toml", server.url)
        agree(machine)
        with flask_workers(machine, *options) as (process, url):
            render_pages(url, 10)
            wait_until(lambda: machine.reports_paid_for()["storage"] == imports)
            told = send(url, "GET", "/admin/telemetry").body.decode()
            stop(process)
        assert server.received  # as the workers ended
        machine.settle()
    assert arrived(server, machine) == {"storage": imports, "failed_in": 10}
    assert len({r["cohort"] for r in server.reports if r["metric"] == "failed_in"}) == 1
    assert "This is what would be sent" in told
    assert not machine.has_stored("json.decoder")


def test_flask_workers_leave_nothing_without_consent(tmp_path):
    with scripted_server() as server:
        machine = Machine(tmp_path, "wiki.toml", server.url)
        agree(machine, "no")
        with flask_workers(machine) as (process, url):
            render_pages(url, 2)
            told = send(url, "GET", "/admin/telemetry").body.decode()
            stop(process)
    assert server.received == []
    assert not machine.state.exists()
    assert "This would not be sent" in told


@contextmanager
def fastapi_server(machine: Machine) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with listening() as listener:
        arguments = ["--app-dir", str(machine.examples), "--fd", str(listener.fileno())]
        with machine.started(
            "uvicorn", *arguments, "fastapi_app:app", listener=listener
        ) as process:
            yield process, address_of(listener)


def test_fastapi_operator_reads_agrees_and_has_everything_forgotten(tmp_path):
    with scripted_server() as server:
        machine = Machine(tmp_path, "wiki.toml", server.url)
        with fastapi_server(machine) as (process, url):
            told = send(url, "GET", "/admin/telemetry").body.decode()
            render_pages(url, 3)
            assert not machine.state.exists()
            thanks = send(url, "PUT", "/admin/telemetry?consent=true").body
            render_pages(url, 6)
            stop(process)
        assert server.received  # as the app ended
        machine.settle()
        assert arrived(server, machine) == {"storage": 1, "failed_in": 6}
        assert not machine.has_stored("json.decoder")
        with fastapi_server(machine) as (process, url):
            words = send(url, "DELETE", "/admin/telemetry").body.decode()
            assert list(machine.state.iterdir()) == []
            render_pages(url, 1)
            stop(process)
        with fastapi_server(machine) as (process, url):
            render_pages(url, 1)
            stop(process)
    assert "What com.example.wiki asks" in told
    assert "This would not be sent: no consent" in told
    assert thanks == b"Thank you."
    assert "Deleted the secret, the account and all unsent reports" in words
    assert list(machine.state.iterdir()) == []
    assert arrived(server, machine)["failed_in"] == 6


def test_fastapi_honours_do_not_track_whatever_the_answer(tmp_path):
    with scripted_server() as server:
        machine = Machine(tmp_path, "wiki.toml", server.url)
        machine.environment["DO_NOT_TRACK"] = "1"
        with fastapi_server(machine) as (process, url):
            answer = send(url, "PUT", "/admin/telemetry?consent=true").body
            render_pages(url, 1)
            stop(process)
    assert answer == b"Nothing is recorded: DO_NOT_TRACK is set."
    assert server.received == []
    assert not machine.state.exists()


@contextmanager
def celery_worker(machine: Machine, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker until it has dealt with five pages, four of which fail."""

    def finished() -> int:
        return len(re.findall("Task .* (?:succeeded|raised)", machine.log.read_text("utf-8")))

    machine.run("celery_app.py", GOOD, *BAD, *BAD)
    assert not machine.state.exists()  # whoever only queues tasks is no client
    arguments = ["--workdir", str(machine.examples), "-A", "celery_app", "worker", *options]
    with machine.started("celery", *arguments, "--loglevel", "INFO") as process:
        wait_until(lambda: finished() == 5)
        yield process


@pytest.mark.long
def test_celery_pool_sends_each_report_once_before_it_ends(tmp_path):
    with scripted_server() as server:
        machine = Machine(tmp_path, "wiki.toml", server.url)
        agree(machine)
        with celery_worker(machine, "--concurrency", "2") as process:
            stop(process)
        assert server.received  # as the pool ended
        machine.settle()
    assert arrived(server, machine) == {"storage": 2, "failed_in": 4}
    assert not machine.has_stored("json.decoder")


def test_celery_worker_leaves_nothing_without_consent(tmp_path):
    with scripted_server() as server:
        machine = Machine(tmp_path, "wiki.toml", server.url)
        agree(machine, "no")
        with celery_worker(machine, "--pool", "solo"):
            pass
    assert server.received == []
    assert not machine.state.exists()


def test_command_line_asks_once_and_sends_what_is_recorded(tmp_path):
    with scripted_server() as server:
        machine = Machine(tmp_path, "notes.toml", server.url)
        assert machine.run("command_line.py", "list") == "No notes.\n"  # nobody there to ask
        assert not machine.state.exists()
        asked = machine.run_at_terminal("command_line.py", "add", "Buy milk", keys="y\n")
        assert "What com.example.notes asks" in asked
        assert "This would not be sent: no consent" in asked
        assert machine.run_at_terminal("command_line.py", "list", keys="\n") == "Buy milk\n"
        assert "Privacy budget used so far" in machine.run("command_line.py", "telemetry")
        machine.settle()
        assert arrived(server, machine) == {"editor": 2, "command": 2}
        assert not machine.has_stored("unheard-of-editor")
        words = machine.run("command_line.py", "telemetry", "forget")
        assert list(machine.state.iterdir()) == []
        machine.run("command_line.py", "list")
    assert "Deleted the secret" in words
    assert len(server.reports) == 4
    assert list(machine.state.iterdir()) == []


def test_command_line_without_network_sends_with_a_later_command(tmp_path):
    is_there = threading.Event()
    with scripted_server(lambda _: Answer(201 if is_there.is_set() else 503)) as server:
        machine = Machine(tmp_path, "notes.toml", server.url)
        machine.run("command_line.py", "telemetry", "on")
        machine.run("command_line.py", "add", "Buy milk")
        machine.run("command_line.py", "add", "Buy bread")
        is_there.set()
        server.received.clear()

        def everything_arrived_after_another_command() -> bool:
            machine.run("command_line.py", "telemetry")
            return len(server.reports) == 4

        wait_until(everything_arrived_after_another_command)
        machine.settle()
    assert arrived(server, machine) == {"editor": 2, "command": 2}


def test_command_line_sends_nothing_more_once_it_is_off(tmp_path):
    machine = Machine(tmp_path, "notes.toml")
    assert machine.run("command_line.py", "telemetry", "on") == "Thank you.\n"
    machine.run("command_line.py", "add", "Buy milk")
    assert machine.reports_paid_for() == {"editor": 1, "command": 1}
    off = machine.run("command_line.py", "telemetry", "off")
    assert off == "Nothing is recorded: no consent.\n"
    with scripted_server() as server:
        machine.connect(server.url)
        machine.run_at_terminal("command_line.py", "list", keys="y\n")
        machine.run("command_line.py", "telemetry")
    assert server.received == []
    assert machine.reports_paid_for() == {"editor": 1, "command": 1}


def test_command_line_honours_do_not_track_and_then_asks_nothing(tmp_path):
    machine = Machine(tmp_path, "notes.toml")
    machine.environment["DO_NOT_TRACK"] = "1"
    assert machine.run_at_terminal("command_line.py", "list", keys="y\n") == "No notes.\n"
    on = machine.run("command_line.py", "telemetry", "on")
    assert on == "Nothing is recorded: DO_NOT_TRACK is set.\n"
    assert not machine.state.exists()


def test_desktop_user_reads_agrees_and_has_everything_forgotten(tmp_path):
    events = ["home news.example.org", "privacy", "yes", "home news.example.org"]
    with scripted_server() as server:
        machine = Machine(tmp_path, "metrics.toml", server.url)
        said = machine.run("desktop_app.py", stdin="\n".join(events))
        machine.settle()
        assert arrived(server, machine) == {"homepage": 1}
        assert not machine.has_stored("news.example.org")
        forgotten = machine.run("desktop_app.py", stdin="forget\nhome news.example.org\nquit\n")
    assert "What com.example.browser asks" in said
    assert "This would not be sent: no consent" in said
    assert said.endswith("Take part? (yes, no)\nThank you.\n")
    assert "Deleted the secret" in forgotten
    assert list(machine.state.iterdir()) == []
    assert len(server.reports) == 1


def test_desktop_user_may_agree_again_after_all_was_forgotten(tmp_path):
    events = ["yes", "home a", "forget", "yes", "home a", "no", "home b"]
    machine = Machine(tmp_path, "metrics.toml")
    said = machine.run("desktop_app.py", stdin="\n".join(events))
    assert said.count("Thank you.") == 2
    assert "Nothing is recorded: no consent." in said
    assert (machine.state / "secret").exists()
    with scripted_server() as server:
        machine.connect(server.url)
        machine.settle()
    assert server.received == []  # what waited was deleted
