"""Compact bodies at the collector beside JSON: their bytes, and the CPU to read and check them."""

from __future__ import annotations

import contextlib
import gzip
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from evaluation.benchmarks.timing import Comparison, compare
from factories import make_metric, make_params, make_registry, make_secret
from hubbub.client import Batch, Encoder, Metric, batch_to_json
from hubbub.collector import BatchError, BatchReader, decompress
from hubbub.protocol import wire
from hubbub.storage import Declared

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
            yield _compare(_Forms([make_metric(params=make_params(k=k))], size))
    for count, size in _OF_SEVERAL:
        metrics = [make_metric(f"metric-{i}") for i in range(count)]
        yield _compare(_Forms(metrics, size), f" of {count} metrics")
    forms = _Forms([make_metric()], 100)
    next_version = make_registry(make_metric(version=2))
    declared = [Declared.of(metric) for metric in forms.metrics]
    yield _compare(forms, " of an earlier version", BatchReader(next_version, declared))
    for size in (1, 100):
        forms = _Forms([make_metric()], size)
        yield _compare(forms, " of no known version", BatchReader(next_version), _refuse)
    yield _compare_compressed(_Forms([make_metric()], 100))


def _read(reader: BatchReader, body: bytes, media_type: str, times: int) -> int:
    for _ in range(times):
        reader.read(body, media_type)
    return times


def _refuse(reader: BatchReader, body: bytes, media_type: str, times: int) -> int:
    for _ in range(times):
        with contextlib.suppress(BatchError):
            reader.read(body, media_type)
    return times


class _Forms:
    """A batch of one client's reports, of some metrics in turn, in both forms."""

    def __init__(self, metrics: Sequence[Metric], size: int) -> None:
        encoders = [Encoder(metric, make_secret()) for metric in metrics]
        reports = [encoders[i % len(metrics)].encode(f"value {i}") for i in range(size)]
        batch = Batch(tuple(reports))
        self.metrics = metrics
        self.size = size
        self.json = batch_to_json(batch)
        self.compact = wire.batch_to_compact(batch)

    @property
    def times(self) -> int:
        """How often to read it in a turn."""
        most = min(_REPORTS_A_TURN // self.size, _MOST_BYTES // len(self.json))
        return max(20, min(_MOST_BATCHES, most))


def _compare(
    forms: _Forms,
    which: str = "",
    reader: BatchReader | None = None,
    read: Callable[[BatchReader, bytes, str, int], int] = _read,
) -> Comparison:
    reader = reader or BatchReader(make_registry(*forms.metrics))
    comparison = compare(
        f"{forms.size} report{'s' * (forms.size > 1)}{which}, k = {forms.metrics[0].params.k}: "
        f"{len(forms.compact):,} bytes",
        partial(read, reader, forms.compact, wire.MEDIA_TYPE, forms.times),
        f"as JSON: {len(forms.json):,} bytes",
        partial(read, reader, forms.json, _JSON, forms.times),
        "batches",
        clock=time.process_time,
    )
    share = len(forms.compact) / len(forms.json)
    return replace(comparison, verdict=f"{comparison.verdict}, {share:.2f} of the bytes")


def _compare_compressed(forms: _Forms) -> Comparison:
    """Compare the compact form as it is with JSON in gzip, which is undone."""
    reader = BatchReader(make_registry(*forms.metrics))
    body = gzip.compress(forms.json, mtime=0)

    def read_compressed() -> int:
        for _ in range(forms.times):
            reader.read(decompress(body, "gzip", 2**20), _JSON)
        return forms.times

    comparison = compare(
        f"{forms.size} reports, k = {forms.metrics[0].params.k}: {len(forms.compact):,} bytes",
        partial(_read, reader, forms.compact, wire.MEDIA_TYPE, forms.times),
        f"as JSON in gzip: {len(body):,} bytes",
        read_compressed,
        "batches",
        clock=time.process_time,
    )
    share = len(forms.compact) / len(body)
    return replace(comparison, verdict=f"{comparison.verdict}, {share:.2f} of the bytes")
