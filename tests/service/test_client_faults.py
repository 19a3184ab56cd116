"""Trouble on the client's machine: nothing spins, blocks, vanishes uncounted or is sent twice."""

import sqlite3
import threading
import time
from contextlib import closing

import pytest

from factories import make_metric, make_registry
from http_servers import Answer, scripted_server
from hubbub.client import Registry, StateError, Telemetry
from service.apps import NOWHERE, App, contents_by_id, held_database
from service.posting import wait_until

HELD_SECONDS = 5.0
UNHURT = HELD_SECONDS / 2  # a call that waits for the disk takes twice as long


def test_full_disk_makes_no_hot_loop(tmp_path):
    """The sender's notifications ended the writer's pause, so that it tried 20 times a second.

    A writer that pauses for five seconds tries twice in four, which a busy machine may stretch;
    13 a second would be 50 attempts.
    """
    script = """
import resource
from hubbub.client import delivery

attempts = 0
store = delivery.DeliveryLoop.store

def counted(self, outbox):
    global attempts
    attempts += 1
    return store(self, outbox)

delivery.DeliveryLoop.store = counted
telemetry = open_telemetry(batch_size=10)
record(telemetry, 5)
telemetry.flush(0.2)
usual = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, usual[1]))
attempts, begun = 0, time.monotonic()
for _ in range(40):
    record(telemetry, 20)
    time.sleep(0.1)
print(attempts, time.monotonic() - begun, telemetry.status().disabled is not None)
resource.setrlimit(resource.RLIMIT_FSIZE, usual)
telemetry._pause(0)
while telemetry.status().disabled or telemetry._recorder.pending:
    time.sleep(0.1)
print(telemetry.status().waiting, dict(telemetry.status().dropped))
os._exit(0)
"""
    app = App(tmp_path, NOWHERE)
    first, second = app.run(script).output
    attempts, seconds, told = first.split()
    assert int(attempts) <= 3 + float(seconds) / 5
    assert told == "True"
    assert second == "805 {}"
    assert app.reports_in_ledger() == 805


def test_record_and_status_wait_for_no_transaction(tmp_path):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    telemetry.record("homepage", "x")
    telemetry.flush(0.3)
    longest = 0.0
    with held_database(tmp_path):
        end = time.monotonic() + HELD_SECONDS
        while time.monotonic() < end:
            start = time.monotonic()
            telemetry.record("hompage", "x")  # which is logged the first time
            telemetry.record("homepage", "x")
            telemetry.status()
            telemetry.ledger()
            longest = max(longest, time.monotonic() - start)
            time.sleep(0.02)
    telemetry.close(0)
    assert longest < UNHURT


ASYNC_FORKS = """
import asyncio
from hubbub.client import AsyncTelemetry

async def deliver(telemetry, count):
    async with telemetry:
        record(telemetry, count, "child")
        return await telemetry.flush(30)

def in_child(telemetry, settled):
    settled.append(asyncio.run(deliver(telemetry, CHILDREN)))

async def main():
    async with AsyncTelemetry(*sys.argv[1:4]) as telemetry:
        record(telemetry, 1, "parent")
        for _ in range(3):
            if os.fork() == 0:
                settled = []  # this thread has the parent's loop, which isn't the child's to use
                thread = threading.Thread(target=in_child, args=(telemetry, settled))
                thread.start()
                thread.join()
                os._exit(settled != [True])
        assert await telemetry.flush(30)

asyncio.run(main())
sys.exit(any(os.wait()[1] for _ in range(3)))
"""


@pytest.mark.parametrize("reports", [0, 2])
def test_forked_children_of_an_event_loop_send_their_own_and_never_their_parents(tmp_path, reports):
    script = ASYNC_FORKS.replace("CHILDREN", str(reports))
    with scripted_server() as server:
        App(tmp_path, server.url, make_metric("parent"), make_metric("child")).run(script)
    assert all(len(contents) == 1 for contents in contents_by_id(server).values())
    metrics = [report["metric"] for report in server.reports]
    assert (metrics.count("parent"), metrics.count("child")) == (1, 3 * reports)


def test_too_many_open_files_at_the_start_pass(tmp_path):
    """The client begins to record when its state can be opened, and never advises to forget."""
    script = """
import logging, resource, sqlite3  # an app that runs has loaded its modules
from hubbub.client import Registry, delivery, state
registry = Registry.load(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = []
try:
    while True:
        files.append(open(os.devnull))
except OSError:
    pass
telemetry = Telemetry(registry, sys.argv[2], sys.argv[3])
record(telemetry, 3)
disabled = telemetry.status().disabled
print("forget" in disabled, "will try again" in disabled, dict(telemetry.status().dropped))
del files
deadline = time.monotonic() + 40
while telemetry.status().disabled and time.monotonic() < deadline:
    time.sleep(0.05)
record(telemetry, 2)
print(telemetry.flush(30), telemetry.status().delivered)
"""
    with scripted_server() as server:
        app = App(tmp_path, server.url)
        first, second = app.run(script).output
    assert first == "False True {'state not available': 3}"
    assert second == "True 2"
    assert len(server.reports) == 2


def test_damage_while_running_is_counted_to_the_last_report(tmp_path):
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    telemetry.record("homepage", "x")
    telemetry.flush(0.3)
    with closing(sqlite3.connect(tmp_path / "client.db")) as connection:
        connection.execute("DROP TABLE answers")
    for _ in range(7):
        telemetry.record("homepage", "x")
    wait_until(lambda: telemetry.status().disabled is not None)
    wait_until(lambda: sum(telemetry.status().dropped.values()) == 7)
    telemetry.record("homepage", "x")
    telemetry.close(0)
    assert telemetry.status().dropped == {"disabled": 8}
    assert "nothing is sent" in str(telemetry.status().disabled)


def test_forgetting_in_one_process_stops_the_others(tmp_path):
    script = """
telemetry = open_telemetry(batch_seconds=0.1)
record(telemetry, 1)
assert telemetry.flush(30)
print("delivered", flush=True)
sys.stdin.readline()
record(telemetry, 5)
deadline = time.monotonic() + 40
while telemetry.status().disabled is None and time.monotonic() < deadline:
    time.sleep(0.05)
print(telemetry.status().disabled, dict(telemetry.status().dropped), flush=True)
"""
    with scripted_server() as server:
        app = App(tmp_path, server.url)
        with app.started(script, stdin=True) as sibling:
            assert sibling.stdout is not None
            assert sibling.stdin is not None
            assert sibling.stdout.readline() == "delivered\n"
            telemetry = Telemetry(make_registry(), server.url, app.state, consent=False)
            assert telemetry.ledger().epsilon == pytest.approx(make_metric().epsilon_report)
            assert "(epsilon 2.04)" in telemetry.forget()
            sibling.stdin.write("\n")
            sibling.stdin.flush()
            line = sibling.stdout.readline()
    assert line.startswith("forgotten: another process has deleted this client's state")
    assert line.strip().endswith("{'disabled': 5}")
    assert len(server.reports) == 1
    assert list(app.state.iterdir()) == []


def test_recordings_while_a_fork_closes_the_state_are_kept(tmp_path):
    script = """
telemetry = open_telemetry()
ended = threading.Event()
def work():
    while not ended.wait(0.001):
        telemetry.record("homepage", "x")
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(30):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    time.sleep(0.02)
ended.set()
for thread in threads:
    thread.join()
settled = telemetry.flush(40)
print(settled, telemetry.status().recorded - telemetry.status().delivered, flush=True)
"""
    with scripted_server(lambda _: Answer()) as server:
        assert App(tmp_path, server.url).run(script).output == ["True 0"]


def test_state_of_another_user_turns_the_client_off_with_a_reason(tmp_path):
    with Telemetry(make_registry(), NOWHERE, tmp_path):
        pass
    (tmp_path / "secret").chmod(0o644)
    with Telemetry(make_registry(), NOWHERE, tmp_path) as telemetry:
        assert "its mode is 644" in str(telemetry.status().disabled)


def test_another_applications_state_turns_the_client_off_and_is_not_forgotten(tmp_path):
    Telemetry(make_registry(), NOWHERE, tmp_path).close(0)
    metrics = make_registry()
    other = Telemetry(Registry("com.example.other", metrics), NOWHERE, tmp_path)
    assert "give each a state_dir of its own" in str(other.status().disabled)
    with pytest.raises(StateError, match="is the state of the application"):
        other.forget()
    assert Telemetry(metrics, NOWHERE, tmp_path).status().disabled is None


def test_threads_of_a_closed_client_end(tmp_path):
    before = set(threading.enumerate())
    telemetry = Telemetry(make_registry(), NOWHERE, tmp_path)
    telemetry.record("homepage", "x")
    telemetry.close(0)
    wait_until(lambda: set(threading.enumerate()) <= before)
