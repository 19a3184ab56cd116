"""Processes and threads that fork, share and end: every report is sent once, nothing hangs."""

import signal
import sqlite3
import threading
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack, closing

import pytest

from factories import make_metric, make_registry
from http_servers import Answer, ScriptedServer, scripted_server
from hubbub.client import Telemetry
from hubbub.client.delivery import DeliveryLoop, Fetch
from hubbub.client.outbox import LeasedBatch, Outbox
from service.apps import NOWHERE, SLACK, App, Gate, contents_by_id, next_line
from service.posting import wait_until

PARENT, CHILD = make_metric("parent"), make_metric("child")


def by_metric(server: ScriptedServer) -> Counter[str]:
    """Count reports, each batch id once; an id that came with two contents is an error."""
    assert all(len(contents) == 1 for contents in contents_by_id(server).values())
    return Counter(report["metric"] for report in server.reports)


@pytest.mark.parametrize(
    ("end", "codes"),
    [
        ("", {0}),
        ("raise RuntimeError('the app failed')", {1}),
        # Python forgets that it was interrupted if what runs at exit imports something.
        ("raise KeyboardInterrupt", {-signal.SIGINT, 1}),
    ],
)
def test_app_that_just_ends_has_its_reports_sent(tmp_path, end, codes):
    script = """
telemetry = open_telemetry()
record(telemetry, 3)
print(time.monotonic())
"""
    with scripted_server() as server:
        ended = App(tmp_path, server.url).run(script + end, codes=codes)
    assert by_metric(server) == {"homepage": 3}
    assert ended.farewell_seconds < 2 + SLACK


def test_app_ends_in_time_without_an_answer_and_delivers_at_the_next_start(tmp_path):
    gate = Gate()
    script = """
telemetry = open_telemetry()
record(telemetry, 3)
print(time.monotonic())
"""
    with scripted_server(gate) as server:
        app = App(tmp_path, server.url)
        assert app.run(script).farewell_seconds < 2 + SLACK
        assert len(server.received) == 1
        gate.opened.set()
        app.run("sys.exit(not open_telemetry().flush(30))")
    assert len(server.received) == 2
    assert by_metric(server) == {"homepage": 3}


def test_report_is_on_disk_a_second_after_it_was_made(tmp_path):
    script = """
telemetry = open_telemetry()
record(telemetry, 1)
print(time.monotonic(), flush=True)
time.sleep(60)
"""
    app = App(tmp_path, NOWHERE)
    with app.started(script) as process:
        recorded = float(next_line(process))
        wait_until(lambda: len(app.records_on_disk()) == 1)
        assert time.monotonic() - recorded < 1 + SLACK


def test_terminated_app_loses_at_most_its_last_second(tmp_path):
    """Python ends at once on SIGTERM, unless the app handles it; we don't in its place."""
    script = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
telemetry = open_telemetry()
record(telemetry, 5)
signal.sigwait({signal.SIGUSR1})
record(telemetry, 2)
print("recorded", flush=True)
time.sleep(60)
"""
    app = App(tmp_path, NOWHERE)
    with app.started(script) as process:
        wait_until(lambda: len(app.records_on_disk()) == 5)
        process.send_signal(signal.SIGUSR1)
        assert next_line(process) == "recorded"
        process.terminate()
        assert process.wait() == -signal.SIGTERM
    assert 5 <= len(app.records_on_disk()) <= 7


@pytest.mark.long
def test_threads_that_still_record_do_not_hinder_the_end(tmp_path):
    script = """
telemetry = open_telemetry(batch_size=10)

def work():
    while True:
        telemetry.record("homepage", "x")
        time.sleep(0.001)

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
print(time.monotonic())
"""
    with scripted_server() as server:
        app = App(tmp_path, server.url)
        assert app.run(script).farewell_seconds < 2 + SLACK
        app.run("sys.exit(not open_telemetry().flush(30))")
    assert by_metric(server) == {"homepage": app.reports_in_ledger()}


def sent_at_the_next_start(app: App, server: ScriptedServer) -> int:
    """Return how many reports the next client of an app brings to a collector that is back."""
    with Telemetry(make_registry(), app.url, app.state) as telemetry:
        assert telemetry.flush(30)
    return by_metric(server)["homepage"]


def test_app_that_can_start_no_thread_has_its_reports_stored(tmp_path):
    script = """
telemetry = open_telemetry()
threading.stack_size(2**46)  # what no machine has
record(telemetry, 2)
status = telemetry.status()
print(status.disabled, status.waiting, status.postponed)
started = time.monotonic()
print(telemetry.flush(30), time.monotonic() - started < 10)
"""
    with scripted_server() as server:
        app = App(tmp_path, server.url)
        assert app.run(script).output == [
            "None 2 can't start new thread; reports are stored, and sent after the next start",
            "False True",
        ]
        assert len(app.records_on_disk()) == 2
        assert sent_at_the_next_start(app, server) == 2


def test_app_that_can_start_threads_again_sends(tmp_path):
    script = """
telemetry = open_telemetry()
threading.stack_size(2**46)
record(telemetry, 1)
threading.stack_size(0)
record(telemetry, 1)
print(telemetry.flush(30), telemetry.status().postponed)
"""
    with scripted_server() as server:
        assert App(tmp_path, server.url).run(script).output == ["True None"]
    assert by_metric(server) == {"homepage": 2}


# Recordings at moments at which Python has ended our threads, or starts no more.
_LATE = {
    "atexit": "atexit.register(record, open_telemetry(), 2)",
    "atexit, in a new client": "atexit.register(lambda: record(open_telemetry(), 2))",
    "atexit, without a thread": """
telemetry = open_telemetry()
threading.stack_size(2**46)
atexit.register(record, telemetry, 2)
""",
    "after our own farewell": """
atexit._clear()  # as if this had been registered before the import
atexit.register(record, telemetry := open_telemetry(), 2)
atexit.register(hubbub.client.telemetry._close_all)
""",
    "a thread after main": """
def work(telemetry):
    threading.main_thread().join()
    time.sleep(0.2)
    record(telemetry, 2)
threading.Thread(target=work, args=(open_telemetry(),)).start()
""",
}


@pytest.mark.parametrize("moment", _LATE)
def test_recordings_at_exit_are_sent_then_or_at_the_next_start(tmp_path, monkeypatch, moment):
    monkeypatch.setenv("PYTHONDEVMODE", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    with scripted_server() as server:
        app = App(tmp_path, server.url)
        ended = app.run("import atexit, hubbub.client.telemetry\nos.dup2(1, 2)\n" + _LATE[moment])
        said = [line for line in ended.output if not line.startswith("hubbub stores reports")]
        assert said == []
        assert sent_at_the_next_start(app, server) == 2


def test_record_does_not_raise_while_python_unloads_its_modules(tmp_path):
    """Then nothing can be imported, so nothing can be stored: it is dropped, and counted."""
    script = """
os.dup2(1, 2)

class Late:
    def __init__(self):
        self.telemetry = open_telemetry()
    def __del__(self):
        self.telemetry.record("homepage", "x")
        print(sum(self.telemetry.status().dropped.values()))

late = Late()
"""
    assert App(tmp_path, NOWHERE).run(script).output == ["1"]


def test_signal_handlers_that_record_neither_hang_nor_lose_anything(tmp_path):
    """A handler interrupts the main thread in the middle of `record`, `flush` and `status`."""
    script = """
telemetry = open_telemetry(batch_size=20)
handled = 0

def handle(*_):
    global handled
    handled += 1
    record(telemetry, 1)

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
ends, recorded = time.monotonic() + 1, 0
while time.monotonic() < ends:
    record(telemetry, 10)
    recorded += 10
    telemetry.status()
    telemetry.flush(0.01)
signal.setitimer(signal.ITIMER_REAL, 0)
print(handled > 50, telemetry.flush(60))
status = telemetry.status()
print(status.recorded - handled - recorded, status.delivered - status.recorded, status.dropped)
"""
    with scripted_server() as server:
        ended = App(tmp_path, server.url).run(script)
    assert ended.output == ["True True", "0 0 {}"]


def test_forked_child_sends_its_own_and_never_its_parents(tmp_path):
    script = """
telemetry = open_telemetry()
record(telemetry, 3, "parent")
child = os.fork()
if child == 0:
    before = telemetry.status()
    record(telemetry, 2, "child")
    settled = telemetry.flush(30)
    print(before.recorded, before.waiting, telemetry.status().recorded, settled, flush=True)
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1] != 0)
"""
    with scripted_server() as server:
        ended = App(tmp_path, server.url, PARENT, CHILD).run(script)
    assert ended.output == ["0 0 2 True"]
    assert by_metric(server) == {"parent": 3, "child": 2}


@pytest.mark.parametrize("first", ["record(telemetry, 2, 'child')", "telemetry.flush(1)"])
def test_child_that_was_forked_in_c_sends_its_own_and_never_its_parents(tmp_path, first):
    """As uWSGI does: Python's own hooks don't run."""
    script = f"""
import ctypes
from hubbub.client.forks import no_fork
telemetry = open_telemetry()
record(telemetry, 3, "parent")
telemetry.flush(30)
time.sleep(0.5)  # a fork in C while threads pass on Python's lock leaves it to nobody
with no_fork():  # in the middle of a transaction the child's client would be turned off
    child = ctypes.PyDLL(None).fork()
if child == 0:
    signal.alarm(30)  # rather than for ever
    {first}
    record(telemetry, 2, "child")
    os._exit(not telemetry.flush(20))
sys.exit(os.waitpid(child, 0)[1] != 0)
"""
    with scripted_server() as server:
        App(tmp_path, server.url, PARENT, CHILD).run(script)
    assert by_metric(server) == {"parent": 3, "child": 4 if "record" in first else 2}


def test_forked_child_that_records_nothing_sends_nothing(tmp_path):
    script = """
telemetry = open_telemetry()
record(telemetry, 3, "parent")
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
"""
    with scripted_server() as server:
        App(tmp_path, server.url, PARENT, CHILD).run(script)
    assert len(server.received) == 1
    assert by_metric(server) == {"parent": 3}


def test_child_of_a_process_whose_lock_was_held_does_not_wait_for_it(tmp_path):
    script = """
telemetry = open_telemetry()
record(telemetry, 3, "parent")
held, released = threading.Event(), threading.Event()

def hold():
    with telemetry._recorder.changed:
        held.set()
        released.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)  # rather than for ever
    record(telemetry, 2, "child")
    os._exit(not telemetry.flush(20))
released.set()
sys.exit(os.waitpid(child, 0)[1] != 0)
"""
    with scripted_server() as server:
        App(tmp_path, server.url, PARENT, CHILD).run(script)
    assert by_metric(server) == {"parent": 3, "child": 2}


def test_child_that_outlives_its_parent_keeps_its_reports(tmp_path):
    """A parent with an open database would leave SQLite in the child wrong about its locks."""
    script = """
telemetry = open_telemetry()
record(telemetry, 3, "parent")
telemetry.flush(0.1)
parent = os.getpid()
reader, writer = os.pipe()
if os.fork() == 0:
    record(telemetry, 2, "child")
    telemetry.flush(0.1)
    os.write(writer, b"!")
    while os.getppid() == parent:
        time.sleep(0.01)
    record(telemetry, 4, "child")
    telemetry.close(0)
    os._exit(0)
os.read(reader, 1)
telemetry.close(0)
for thread in threading.enumerate():
    if thread.daemon:
        thread.join()
"""
    app = App(tmp_path, NOWHERE, PARENT, CHILD)
    app.run(script)
    assert len(app.records_on_disk()) == app.reports_in_ledger() == 9


@pytest.mark.long
def test_forks_of_a_busy_process_lose_nothing_and_send_nothing_twice(tmp_path):
    script = """
telemetry = open_telemetry(batch_size=10)
ended = threading.Event()

def work():
    while not ended.wait(0.002):
        telemetry.record("parent", "x")

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
children = []
for _ in range(8):
    time.sleep(0.03)
    children.append(os.fork())
    if children[-1] == 0:
        signal.alarm(50)
        record(telemetry, 5, "child")
        os._exit(not telemetry.flush(40))
ended.set()
for thread in threads:
    thread.join()
failures = [child for child in children if os.waitpid(child, 0)[1]]
settled = telemetry.flush(40)
print(telemetry.status().recorded, dict(telemetry.status().dropped))
sys.exit(bool(failures) or not settled)
"""
    with scripted_server() as server:
        ended = App(tmp_path, server.url, PARENT, CHILD).run(script)
    recorded = int(ended.output[-1].removesuffix(" {}"))
    assert by_metric(server) == {"parent": recorded, "child": 40}


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_share_one_client(tmp_path, method):
    """All of them start at once, the first time ever; so they draw one secret and one cohort."""
    script = f"""
import multiprocessing

def work():
    telemetry = open_telemetry(batch_size=10)
    record(telemetry, 40)
    sys.exit(not telemetry.flush(40))

if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    workers = [context.Process(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(any(worker.exitcode for worker in workers))
"""
    with scripted_server() as server:
        App(tmp_path, server.url).run(script)
    assert by_metric(server) == {"homepage": 120}
    assert len({report["cohort"] for report in server.reports}) == 1


def test_processes_that_share_an_outbox_deliver_each_batch_once(tmp_path):
    is_open = threading.Event()
    with (
        scripted_server(lambda _: Answer(201 if is_open.is_set() else 503)) as server,
        ExitStack() as stack,
    ):
        app = App(tmp_path, server.url)
        app.run(
            "telemetry = open_telemetry(batch_size=5); record(telemetry, 200); telemetry.close(0)"
        )
        assert len(app.records_on_disk()) == 200
        is_open.set()
        server.received.clear()
        script = "sys.exit(not open_telemetry(batch_size=5).flush(40))"
        processes = [stack.enter_context(app.started(script)) for _ in range(4)]
        assert [process.wait() for process in processes] == [0, 0, 0, 0]
    assert by_metric(server) == {"homepage": 200}
    assert len(server.received) == len(contents_by_id(server)) == 40
    assert app.records_on_disk() == []


def test_flush_sees_what_another_process_stores_just_after_it_looked(tmp_path, monkeypatch):
    look = DeliveryLoop.schedule
    stored: list[bool] = []

    def look_too_early(loop: DeliveryLoop, outbox: Outbox, *, at_once: bool = False) -> object:
        step = look(loop, outbox, at_once=at_once)
        if isinstance(step, float) and not stored:
            stored.append(True)
            app.run("telemetry = open_telemetry(); record(telemetry, 3); telemetry.close(0)")
        return step

    with scripted_server() as server:
        app = App(tmp_path, server.url)
        telemetry = Telemetry(make_registry(), server.url, app.state)
        monkeypatch.setattr(DeliveryLoop, "schedule", look_too_early)
        assert telemetry.flush(30)
        telemetry.close()
    assert by_metric(server) == {"homepage": 3}


def test_database_that_another_process_keeps_locked_is_waited_for(tmp_path):
    """It is locked just when an answer arrives, and for longer than SQLite waits."""

    def lock_at_first(number: int) -> Answer:
        if number == 0:
            lock.execute("BEGIN IMMEDIATE")
        return Answer()

    with scripted_server(lock_at_first) as server, ExitStack() as stack:
        telemetry = Telemetry(make_registry(), server.url, tmp_path)
        lock = sqlite3.connect(
            tmp_path / "client.db", isolation_level=None, check_same_thread=False
        )
        stack.enter_context(closing(lock))
        telemetry.record("homepage", "x")
        assert not telemetry.flush(1)
        telemetry.record("homepage", "x")
        lock.execute("COMMIT")
        assert telemetry.flush(30)
        status = telemetry.status()
        telemetry.close()
    assert (status.recorded, status.delivered, status.waiting) == (2, 2, 0)
    assert status.disabled is None
    assert by_metric(server) == {"homepage": 2}


def test_report_that_comes_while_the_outbox_is_looked_at_is_not_overlooked(tmp_path, monkeypatch):
    """One thread finds nothing to send, and before it rests another one brings something."""
    look = DeliveryLoop.schedule

    def look_and_dawdle(
        loop: DeliveryLoop, outbox: Outbox, *, at_once: bool = False
    ) -> LeasedBatch | Fetch | float:
        step = look(loop, outbox, at_once=at_once)
        time.sleep(0.2 * isinstance(step, float))
        return step

    monkeypatch.setattr(DeliveryLoop, "schedule", look_and_dawdle)
    with scripted_server() as server:
        telemetry = Telemetry(make_registry(), server.url, tmp_path, batch_size=1)
        for _ in range(3):
            telemetry.record("homepage", "x")
            wait_until(lambda: telemetry.status().delivered == telemetry.status().recorded)
        telemetry.close()


def test_aiohttp_program_delivers_until_it_is_terminated(tmp_path):
    script = """
import socket
from aiohttp import web
from hubbub.client import AsyncTelemetry

TELEMETRY = web.AppKey("telemetry", AsyncTelemetry)

async def telemetry(app):
    async with AsyncTelemetry(sys.argv[1], sys.argv[2], sys.argv[3]) as app[TELEMETRY]:
        yield

async def visit(request):
    request.app[TELEMETRY].record("homepage", "x")
    return web.Response(text="welcome")

app = web.Application()
app.cleanup_ctx.append(telemetry)
app.router.add_get("/", visit)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
web.run_app(app, sock=listener, print=None)
"""
    with scripted_server() as server, App(tmp_path, server.url).started(script) as process:
        address = f"http://127.0.0.1:{next_line(process)}/"
        for _ in range(20):
            assert get(address) == b"welcome"
        process.terminate()
        assert process.wait() == 0
    assert by_metric(server) == {"homepage": 20}


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as response:
        return bytes(response.read())
