"""Compact bodies at the collector beside JSON: their bytes, and the CPU to read and check them."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from evaluation.benchmarks.timing import Comparison, compare
from factories import make_metric, make_params, make_registry, make_secret
from hubbub.client import Batch, Encoder, Metric, batch_to_json
from hubbub.collector.ingest.body import decompress
from hubbub.collector.ingest.reader import BatchReader
from hubbub.protocol import compact

_SIZES = (1, 10, 100, 1000)
_WIDTHS = (8, 128, 1024)
_OF_SEVERAL = ((10, 10), (10, 20), (10, 100), (100, 100))  # metrics, reports
_JSON = "application/json"
_REPORTS_A_TURN = 100_000
_MOST_BATCHES = 20_000
_MOST_BYTES = 2**26


def comparisons() -> Iterator[Comparison]:
    """Compare batches of several sizes and widths, of one metric and of several."""
    for k in _WIDTHS:
        for size in _SIZES:
            yield _compare([make_metric(params=make_params(k=k))], size)
    for count, size in _OF_SEVERAL:
        yield _compare([make_metric(f"metric-{i}") for i in range(count)], size)
    yield _compare([make_metric()], 100, compressed=True)


def _compare(metrics: Sequence[Metric], size: int, *, compressed: bool = False) -> Comparison:
    """Compare the forms of one client's batch; compressed: JSON as in gzip, which is undone."""
    encoders = [Encoder(metric, make_secret()) for metric in metrics]
    reports = tuple(encoders[i % len(metrics)].encode(f"value {i}") for i in range(size))
    batch = Batch(reports)
    as_json, body = batch_to_json(batch), compact.batch_to_compact(batch)
    reader = BatchReader(make_registry(*metrics))
    read_json: Callable[[], object] = partial(reader.read, as_json, _JSON)
    if compressed:
        as_json = gzip.compress(as_json, mtime=0)
        read_json = partial(_read_compressed, reader, as_json)
    times = max(20, min(_MOST_BATCHES, _REPORTS_A_TURN // size, _MOST_BYTES // len(as_json)))
    of = f" of {len(metrics)} metrics" if len(metrics) > 1 else ""
    share = len(body) / len(as_json)
    comparison = compare(
        f"{size} report{'s' * (size > 1)}{of}, k = {metrics[0].params.k}: {len(body):,} bytes",
        partial(_repeat, partial(reader.read, body, compact.MEDIA_TYPE), times),
        f"as {'gzipped ' * compressed}JSON: {len(as_json):,} bytes",
        partial(_repeat, read_json, times),
        "batches",
        clock=time.process_time,
    )
    return replace(comparison, verdict=f"{comparison.verdict}, {share:.2f} of the bytes")


def _read_compressed(reader: BatchReader, body: bytes) -> object:
    return reader.read(decompress(body, "gzip", 2**20), _JSON)


def _repeat(call: Callable[[], object], times: int) -> int:
    for _ in range(times):
        call()
    return times
