"""Counts on all cores: records are handed over as they are read, and counted meanwhile.

Small chunks are joined and large ones cut, so that whatever a store holds is counted in pieces of
four megabytes, few of them at a time. Sums of integers don't depend on the order, so neither do
counts on the number of threads; the detector sees the records one after the other, as they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

from hubbub.decoder.counts import CohortCounts, check_whole, count_records, empty_counts
from hubbub.decoder.parallel import cores
from hubbub.decoder.reports.anomalies import AnomalyDetector
from hubbub.decoder.reports.packed import ReportSpool
from hubbub.protocol.params import RapporParams
from hubbub.protocol.records import Records, record_width

_PIECE_BYTES = 2**22
_PIECES_A_THREAD = 3


class _UnderWay(NamedTuple):
    """A piece that is being counted and looked at."""

    counts: Future[CohortCounts]
    look: Future[None] | None


class Counting:
    """Counts the records that are added; a context, at whose end its threads end.

    Parameters
    ----------
    params : RapporParams
    detector : AnomalyDetector, optional
        Gets to see the same records.
    spool : ReportSpool, optional
        Keeps the same records, for a method that needs whole reports.
    progress : callable
        Called with the reports counted so far, by the thread that adds records.
    threads : int, optional
        That count; as many as there are cores if None.
    """

    def __init__(
        self,
        params: RapporParams,
        *,
        detector: AnomalyDetector | None = None,
        spool: ReportSpool | None = None,
        progress: Callable[[int], None] = lambda _done: None,
        threads: int | None = None,
    ) -> None:
        self._params = params
        self._detector = detector
        self._spool = spool
        self._progress = progress
        self._threads = threads or cores()
        self._size = max(1, _PIECE_BYTES // record_width(params.k)) * record_width(params.k)
        self._counts = empty_counts(params)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._under_way: deque[_UnderWay] = deque()
        self._counters = ThreadPoolExecutor(self._threads, "count")
        self._looker = ThreadPoolExecutor(1, "look")  # one thread, so that it sees them in order

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._counters.shutdown(cancel_futures=True)
        self._looker.shutdown(cancel_futures=True)

    def add(self, records: bytes) -> None:
        """Take more records; waits if too many of them aren't counted yet.

        Raises
        ------
        UndecodableError
            If they, or some that were added before, aren't whole records of the parameters.
        """
        check_whole(records, self._params)
        if self._spool:
            self._spool.add(records)
        self._waiting.append(records)
        self._waiting_bytes += len(records)
        if self._waiting_bytes >= self._size:
            self._hand_over()

    def result(self) -> CohortCounts:
        """Return the counts of all that was added (raises as `add`)."""
        self._hand_over()
        while self._under_way:
            self._settle()
        return self._counts

    def _hand_over(self) -> None:
        records = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        for start in range(0, len(records), self._size):
            self._start(records[start : start + self._size])
            if len(self._under_way) > _PIECES_A_THREAD * self._threads:
                self._settle()

    def _start(self, piece: bytes) -> None:
        look = None
        if self._detector:
            records = Records(record_width(self._params.k), piece)
            look = self._looker.submit(self._detector.add, records)
        counting = self._counters.submit(count_records, piece, self._params)
        self._under_way.append(_UnderWay(counting, look))

    def _settle(self) -> None:
        """Wait for the piece that was handed over first."""
        piece = self._under_way.popleft()
        self._counts += piece.counts.result()
        if piece.look:
            piece.look.result()
        self._progress(self._counts.total)
