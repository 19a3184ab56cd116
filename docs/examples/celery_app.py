"""Celery: one `Telemetry` in each process of the pool, from its first moment to its last.

    celery --workdir docs/examples -A celery_app worker --concurrency 2
    python docs/examples/celery_app.py '{"title": "Home", "text": "Welcome"}'    # queues a page

The processes of the pool end without Python's work at exit, so `worker_process_shutdown` has to
close it. Processes that only queue tasks import this module too, and open nothing.
"""

from __future__ import annotations

import functools
import sys

from celery import Celery
from celery.signals import task_failure, worker_process_init, worker_process_shutdown

import wiki
from hubbub.client import Telemetry

# Tasks as files in a folder: so this runs without a broker. Yours would be redis:// or amqp://.
_QUEUE = wiki.FOLDER / "queue"
_QUEUE.mkdir(parents=True, exist_ok=True)
app = Celery("celery_app", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": str(_QUEUE),
    "data_folder_out": str(_QUEUE),
    "control_folder": str(_QUEUE / "control"),
}


@functools.cache
def telemetry() -> Telemetry:
    """Return this process's telemetry."""
    return Telemetry(wiki.METRICS, wiki.ENDPOINT, wiki.STATE, consent=wiki.agreed())


@worker_process_init.connect
def begin(**_details: object) -> None:
    """Open it, so that what an earlier run left behind is sent."""
    telemetry().record("storage", wiki.STORAGE)


@worker_process_shutdown.connect
def end(**_details: object) -> None:
    """Send what waits, for at most two seconds; what is left stays on disk for the next start."""
    telemetry().close()


@app.task
def render(source: str) -> str:
    """Turn a page into HTML."""
    return wiki.render(source)


@task_failure.connect
def note_failure(exception: BaseException, **_details: object) -> None:
    """Report where a task failed; Celery logs the error."""
    telemetry().record("failed_in", wiki.failing_module(exception))


if __name__ == "__main__":
    from celery_app import render as task  # by the name that the worker knows

    for source in sys.argv[1:]:
        task.delay(source)
