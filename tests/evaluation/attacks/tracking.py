"""Be a collector that wants to know which requests are one client's, from network to network.

It can answer as it likes. What it can't be kept from seeing: a report that is sent again is the
same report (docs/understand/proofs.md, What a collector can track).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from evaluation.attacks.leftovers import started_in_node
from evaluation.attacks.outcome import Outcome
from factories import make_metric, make_registry
from http_servers import Answer, Received, ScriptedServer, scripted_server
from hubbub.client import Telemetry
from hubbub.protocol import wire
from service.posting import wait_until

_BATCHES = 5
_BUSY = Answer(503, b'{"stored": false}')
_Client = Callable[[ScriptedServer, int], AbstractContextManager[None]]


def attack(*, quick: bool) -> Iterator[Outcome]:  # noqa: ARG001 (it is quick)
    """Count what one request of a client has in common with another, beside its reports."""
    clients: dict[str, _Client] = {"Python": _python, "Node": _node}
    for name, client in clients.items():
        yield Outcome(
            f"{name}: later batches that look different after one 415", _marked(client), 0
        )
        shown = _shown_again(client, _BUSY)
        yield Outcome(f"{name}: batch ids shown again, nothing stored", shown, 0)


def _marked(client: _Client) -> int:
    with scripted_server(lambda n: Answer(415 if n == 0 else 201)) as server:
        with client(server, 1):
            wait_until(lambda: len(server.received) > _BATCHES)
        later = server.received[2:]
    return sum(request.headers["Content-Type"] != wire.MEDIA_TYPE for request in later)


def _shown_again(client: _Client, answer: Answer) -> int:
    with scripted_server(lambda n: answer if n < 3 else Answer()) as server:
        with client(server, 100):
            wait_until(lambda: len(server.received) > 3)
        ids = Counter(map(_batch_id, server.received))
    return sum(count > 1 for count in ids.values())


def _batch_id(request: Received) -> bytes:
    return request.body[1:17]


@contextmanager
def _python(server: ScriptedServer, batch_size: int) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        telemetry = Telemetry(make_registry(), server.url, folder, batch_size=batch_size)
        for _ in range(_BATCHES):
            telemetry.record("homepage", "x")
            telemetry.flush(0.5)
        yield
        telemetry.close()


@contextmanager
def _node(server: ScriptedServer, batch_size: int) -> Iterator[None]:
    script = f"""
const telemetry = start({{ batchSize: {batch_size}, firstRetryMillis: 10 }});
for (let i = 0; i < {_BATCHES}; i++) {{
  telemetry.record("homepage", "x");
  await telemetry.flush(500);
}}
process.stdin.resume();
"""
    with (
        tempfile.TemporaryDirectory() as folder,
        started_in_node(script, Path(folder), server.url, make_metric()),
    ):
        yield
