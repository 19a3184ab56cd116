"""An app is killed at random moments, again and again: every report counts once, none is lost.

A report's noisy bits tell it from all others (two are alike with probability 1e-26), so the store
shows at once what was counted twice. What ever reached the disk stands in the client's ledger,
written in the same transaction, so the store shows what was lost too.
"""

import itertools
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from http_servers import Answer, ScriptedServer, scripted_server
from hubbub.simulations import Collector
from service.apps import App, records_on_disk
from service.posting import post, stored_records, wait_until

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("HUBBUB_KILLS", "8"))
LIFE_SECONDS = 0.8

BUSY_APP = """
telemetry = open_telemetry(batch_size=20, batch_seconds=0.1)
diary = os.open(os.path.join(os.path.dirname(sys.argv[3]), "diary"), os.O_WRONLY | os.O_APPEND)
while True:
    os.write(diary, b".")  # before the report, so that there are never more reports than entries
    telemetry.record("homepage", "x")
    time.sleep(0.001)
"""

CLEAN_APP = """
telemetry = open_telemetry()
sys.exit(not telemetry.flush(60))
"""


def test_killed_app_loses_no_report_that_reached_the_disk_and_sends_none_twice(
    collector, database, tmp_path
):
    chance = random.Random(20140814)  # noqa: S311
    diary = tmp_path / "diary"
    diary.touch()
    seen_on_disk: set[bytes] = set()
    mended = threading.Event()
    with unreliable_road_to(collector, mended) as road:
        app = App(tmp_path, road.url)
        for number in itertools.count():
            if number >= KILLS and seen_on_disk:
                break
            kill_at_a_random_moment(app, chance, diary, while_starting=number % 4 == 0)
            if app.state.exists():
                copy = shutil.copytree(app.state, tmp_path / f"state after kill {number}")
                seen_on_disk.update(records_on_disk(copy))
        mended.set()
        app.run(CLEAN_APP)
    stored = stored_records(database)
    assert len(stored) == len(set(stored))
    assert seen_on_disk <= set(stored)
    assert len(stored) == app.reports_in_ledger()
    assert len(stored) <= diary.stat().st_size
    assert app.records_on_disk() == []


def kill_at_a_random_moment(
    app: App, chance: random.Random, diary: Path, *, while_starting: bool
) -> None:
    entries = diary.stat().st_size
    with app.started(BUSY_APP) as process:
        if not while_starting:
            wait_until(lambda: diary.stat().st_size > entries)
        time.sleep(chance.uniform(0.0, LIFE_SECONDS))
        process.kill()
        process.wait()


@contextmanager
def unreliable_road_to(collector: Collector, mended: threading.Event) -> Iterator[ScriptedServer]:
    """Take time; until mended lose a third of the requests, and a quarter of others' answers.

    So most kills strike when the client doesn't know yet what has become of a batch.
    """

    def forward(number: int) -> Answer:
        chance = random.Random(number)  # noqa: S311
        is_lost, is_answered = chance.random() < 1 / 3, chance.random() < 3 / 4
        is_lost, is_answered = is_lost and not mended.is_set(), is_answered or mended.is_set()
        request = road.received[number]
        encoding = request.headers.get("Content-Encoding")
        headers = {"Content-Encoding": encoding} if encoding else {}
        answer = None if is_lost else post(collector.url, request.body, headers=headers)
        time.sleep(chance.uniform(0.0, 0.3))
        return Answer(answer.status, answer.body) if answer and is_answered else Answer(0)

    with scripted_server(forward) as road:
        yield road
