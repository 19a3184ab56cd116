"""The client: encoding against drawing bit by bit, recording and importing against the least."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.timing import Comparison, compare
from factories import make_metric, make_params, make_registry, make_secret
from hubbub.client import Encoder, RapporParams, Telemetry
from hubbub.client.bloom import bloom_bits

_VALUE = "https://www.example.com/"
_NOWHERE = "http://127.0.0.1:9"
_REPORTS, _LOOPED_REPORTS, _IMPORTS = 5_000, 100, 20
_SETTINGS = (
    make_params(f=0.5, p=0.5, q=0.75),
    make_params(f=0.3141, p=0.1234, q=0.8765),
)


def comparisons() -> Iterator[Comparison]:
    """Time the client's parts."""
    yield from map(_encoding, _SETTINGS)
    yield _recording()
    yield _importing()


def _encoding(params: RapporParams) -> Comparison:
    encoder = Encoder(make_metric(params=params), make_secret())
    draw = random.SystemRandom().random

    def encode() -> int:
        for _ in range(_REPORTS):
            encoder.encode(_VALUE)
        return _REPORTS

    def loop() -> int:
        for _ in range(_LOOPED_REPORTS):
            true = bloom_bits(_VALUE, encoder.cohort, params)
            reported = 0
            for lane in range(params.k):
                flipped = (true >> lane & 1) ^ (draw() < params.flip)
                reported |= (draw() < (params.q if flipped else params.p)) << lane
        return _LOOPED_REPORTS

    setting = f"k={params.k} h={params.h} f={params.f} p={params.p} q={params.q}"
    return compare(
        f"Encoder.encode, {setting}",
        encode,
        "each bit by random.SystemRandom().random() < p",
        loop,
        "reports",
    )


def _recording() -> Comparison:
    encoder = Encoder(make_metric(), make_secret())
    with tempfile.TemporaryDirectory() as state:
        telemetry = Telemetry(
            make_registry(), _NOWHERE, state, batch_size=10**6, max_pending=10**6,
            batch_seconds=3600,
        )  # fmt: skip

        def record() -> int:
            for _ in range(_REPORTS):
                telemetry.record("homepage", _VALUE)
            return _REPORTS

        def encode() -> int:
            for _ in range(_REPORTS):
                encoder.encode(_VALUE)
            return _REPORTS

        result = compare("Telemetry.record", record, "Encoder.encode alone", encode, "calls")
        telemetry.close(0)
    return result


def _importing() -> Comparison:
    def run(script: str) -> int:
        subprocess.run([sys.executable, "-c", script], check=True)
        return 1

    return compare(
        "python -c 'import hubbub.client'",
        lambda: run("import hubbub.client"),
        "python -c pass",
        lambda: run("pass"),
        "starts",
        _IMPORTS,
    )
