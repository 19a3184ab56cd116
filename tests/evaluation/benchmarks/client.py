"""The client: encoding and sampling against plainer ways, recording and importing against least."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count, repeat

from evaluation.benchmarks.timing import Comparison, compare, compare_amounts, compare_calls
from factories import make_metric, make_params, make_registry, make_secret
from http_servers import scripted_server
from hubbub.client import Encoder, RapporParams, Telemetry
from hubbub.protocol import bloom_bits

_VALUE = "https://www.example.com/"
_REPORTS, _LOOPED_REPORTS = 5_000, 100
_SETTINGS = (
    make_params(f=0.5, p=0.5, q=0.75),
    make_params(f=0.3141, p=0.1234, q=0.8765),
)
_MEMORY = "print(next(x for x in open('/proc/self/status') if x.startswith('VmHWM')).split()[1])"


def comparisons() -> Iterator[Comparison]:
    """Time the client's parts."""
    for params in _SETTINGS:
        yield _encoding(params, "a new value each time", (f"{_VALUE}{i}" for i in count()))
        yield _encoding(params, "the same value", repeat(_VALUE))
    yield _recording()
    yield _slowest_recordings()
    yield compare_amounts(
        "import hubbub.client: time", lambda: _start("import hubbub.client"),
        "python -c pass", lambda: _start("pass"), "ms",
    )  # fmt: skip
    yield compare_amounts(
        "import hubbub.client: memory", lambda: _memory("import hubbub.client"),
        "python -c pass", lambda: _memory("pass"), "MB",
    )  # fmt: skip


def _encoding(params: RapporParams, label: str, values: Iterator[str]) -> Comparison:
    encoder = Encoder(make_metric(params=params), make_secret())
    draw = random.SystemRandom().random

    def encode() -> int:
        for _ in range(_REPORTS):
            encoder.encode(next(values))
        return _REPORTS

    def loop() -> int:
        for _ in range(_LOOPED_REPORTS):
            true = bloom_bits(_VALUE, encoder.cohort, params)
            reported = 0
            for lane in range(params.k):
                flipped = (true >> lane & 1) ^ (draw() < params.f / 2)
                reported |= (draw() < (params.q if flipped else params.p)) << lane
        return _LOOPED_REPORTS

    setting = f"k={params.k} h={params.h} f={params.f} p={params.p} q={params.q}"
    return compare(
        f"Encoder.encode, {setting}, {label}",
        encode,
        "each bit by random.SystemRandom().random() < p",
        loop,
        "reports",
    )


def _recording() -> Comparison:
    encoder = Encoder(make_metric(), make_secret())
    with scripted_server() as server, tempfile.TemporaryDirectory() as state:
        # Room for all calls: how soon the disk takes them over isn't measured.
        telemetry = Telemetry(make_registry(), server.url, state, max_pending=20_000)
        result = compare_calls(
            "Telemetry.record, while its threads write and send",
            lambda: telemetry.record("homepage", _VALUE),
            "Encoder.encode alone",
            lambda: encoder.encode(_VALUE),
        )
        telemetry.close(60)
        status = telemetry.status()
    if status.delivered != status.recorded:
        raise RuntimeError(f"not everything was delivered: {status}")
    return result


def _slowest_recordings() -> Comparison:
    """Compare the slowest of 100,000 calls, ten bursts, with those of plain encoding."""
    encoder = Encoder(make_metric(), make_secret())
    with scripted_server() as server, tempfile.TemporaryDirectory() as state:
        telemetry = Telemetry(make_registry(), server.url, state)

        def slowest(call: Callable[[], object]) -> float:
            times = []
            for _ in range(10):
                for _ in range(10_000):
                    started = time.perf_counter()
                    call()
                    times.append(time.perf_counter() - started)
                telemetry.flush(30)
            return 1000 * sorted(times)[-10]

        result = compare_amounts(
            "Telemetry.record: 99.99% of 100,000 calls take less than",
            lambda: slowest(lambda: telemetry.record("homepage", _VALUE)),
            "Encoder.encode alone",
            lambda: slowest(lambda: encoder.encode(_VALUE)),
            "ms",
            turns=3,
        )
        telemetry.close(60)
    return result


def _start(script: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", script], check=True)
    return 1000 * (time.perf_counter() - started)


def _memory(script: str) -> float:
    command = [sys.executable, "-c", f"{script}\n{_MEMORY}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024
