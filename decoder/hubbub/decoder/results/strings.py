"""Decoded strings as a result: a row a candidate, a summary, a report.

Where the data can't tell (see `Summary.indistinguishable`), numbers are nan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from hubbub.decoder.arrays import IntArray
from hubbub.decoder.decoding import Decoding, Summary
from hubbub.decoder.inference.intervals import CONFIDENCE, Z_CONFIDENCE
from hubbub.decoder.reports.anomalies import AnomalyReport
from hubbub.decoder.results.provenance import Provenance
from hubbub.decoder.results.result import (
    ROWS,
    Block,
    Columns,
    Heading,
    Line,
    Report,
    Result,
    Table,
    Types,
    headings,
)
from hubbub.decoder.results.strings_report import largest_detected, strings_report
from hubbub.decoder.results.wording import (
    ERROR_RATES,
    anomaly_lines,
    forgery_line,
    limit_line,
    visible,
)

NUMBERS = (
    "count",
    "std_error",
    "count_low",
    "count_high",
    "proportion",
    "prop_std_error",
    "prop_low",
    "prop_high",
    "refit",
    "p_value",
    "q_value",
)
COLUMNS = ("string", *NUMBERS, "detected")
CHUNK = 16_384
"""Rows that are in memory at once."""


@dataclass(frozen=True, slots=True)
class StringsResult(Result):
    """What became of each candidate.

    Attributes
    ----------
    decoding : Decoding
    anomalies : AnomalyReport, optional
        What looks odd in the single reports; None if there were only counts.
    provenance : Provenance, optional
    detected_only : bool
        Whether rows of others are left out.
    limit : int
        Most rows that a terminal shows.
    """

    decoding: Decoding
    anomalies: AnomalyReport | None = None
    provenance: Provenance | None = None
    detected_only: bool = False
    limit: int = 40

    @property
    def types(self) -> Types:
        """The columns, the same for all decodings."""
        return {"string": str, **dict.fromkeys(NUMBERS, float), "detected": bool}

    def parts(self) -> Iterator[Columns]:
        """Yield the candidates' results, in the candidates' order."""
        decoding = self.decoding
        if not self.detected_only:
            for start in range(0, len(decoding.candidates), CHUNK):
                rows = slice(start, start + CHUNK)
                yield _part(decoding, list(decoding.candidates[rows]), rows)
            return
        chosen = np.flatnonzero(decoding.detected)
        for start in range(0, len(chosen), CHUNK):
            some = chosen[start : start + CHUNK]
            yield _part(decoding, [decoding.candidates[int(i)] for i in some], some)

    def document(self) -> Mapping[str, object]:
        """Return "summary", "scrutiny", "provenance" (null where there is none) and "rows"."""
        return {
            "summary": asdict(self.decoding.summary),
            "scrutiny": self.anomalies and self.anomalies.as_json(),
            "provenance": self.provenance and self.provenance.as_json(),
            "rows": ROWS,
        }

    def blocks(self) -> Iterator[Block]:
        """Yield the strongest candidates and the summary."""
        decoding, limit = self.decoding, self.limit
        if self.detected_only:
            order = largest_detected(decoding)
            n_rows = len(order)
        else:
            order, n_rows = strongest_first(decoding, limit), len(decoding.candidates)
        yield _table(decoding, order[:limit])
        yield Line("")
        if n_rows > limit:
            yield Line(f"… and {n_rows - limit:,} more; --output writes them all\n")
        yield summary_lines(decoding, self.anomalies)

    @property
    def suspicious(self) -> bool:
        """Whether single reports look forged."""
        return bool(self.anomalies and self.anomalies.suspicious)

    def report(self) -> Report:
        """Return what was found, how sure it is, and where it comes from."""
        facts = summary_lines(self.decoding, self.anomalies)
        return strings_report(self.decoding, facts, self.anomalies, self.provenance)


def _part(decoding: Decoding, strings: list[str], rows: slice | IntArray) -> Columns:
    shares = [
        values[rows] for values in (decoding.share, decoding.std_error, decoding.low, decoding.high)
    ]
    counts = [values * decoding.summary.reports for values in shares]
    tests = [decoding.refit[rows], decoding.p_value[rows], decoding.q_value[rows]]
    columns = [strings, *counts, *shares, *tests, decoding.detected[rows].tolist()]
    return dict(zip(COLUMNS, columns, strict=True))


def _table(decoding: Decoding, indices: IntArray) -> Table:
    rows, styles = [], []
    n_reports = decoding.summary.reports
    for index in map(int, indices):
        low, high = decoding.low[index] * n_reports, decoding.high[index] * n_reports
        share, found = decoding.share[index], bool(decoding.detected[index])
        known = not np.isnan(share)
        rows.append(
            (
                visible(decoding.candidates[index]),
                f"{share * n_reports:,.0f}" if known else "",
                f"{low:,.0f} … {high:,.0f}" if known else "",
                f"{share:.3%}" if known else "",
                f"{decoding.p_value[index]:.1e}",
                f"{decoding.q_value[index]:.1e}",
                "yes" if found else "",
            )
        )
        styles.append("" if found else "dim")
    heads = headings("string", "count", f"{CONFIDENCE:.0%} interval", "share", "p", "q")
    return Table(
        "Candidates, strongest first",
        (*heads, Heading("detected", "center")),
        tuple(rows),
        styles=tuple(styles),
    )


def strongest_first(decoding: Decoding, most: int) -> IntArray:
    """Return the first `most` candidates by detection, then p-value, then estimate."""
    found = largest_detected(decoding)
    wanted, others = most - len(found), np.flatnonzero(~decoding.detected)
    if wanted <= 0 or not len(others):
        return found[:most]
    p_value = decoding.p_value[others]
    if wanted < len(others):
        likeliest = p_value <= np.partition(p_value, wanted - 1)[wanted - 1]
        others, p_value = others[likeliest], p_value[likeliest]
    share = np.nan_to_num(decoding.share[others], nan=-np.inf)
    return np.concatenate([found, others[np.lexsort((-share, p_value))][:wanted]])


def summary_lines(decoding: Decoding, anomalies: AnomalyReport | None = None) -> dict[str, str]:
    """Return the summary's lines by what they are about."""
    lines = _estimation(decoding.summary) | (anomaly_lines(anomalies) if anomalies else {})
    summary = decoding.summary
    lines["if forged"] = forgery_line(summary.forged_share, summary.forgery_shift)
    return lines


def _estimation(summary: Summary) -> dict[str, str]:
    cohorts = f"{summary.cohorts:,}"
    if summary.empty_cohorts:
        cohorts += f" ({summary.empty_cohorts:,} without reports)"
    lines = {
        "reports": f"{summary.reports:,}",
        "cohorts": cohorts,
        "epsilon of one report": f"{summary.epsilon_report:.4g}",
        "epsilon for life (one value)": f"{summary.epsilon_permanent:.4g}",
        "candidates": f"{summary.candidates:,}",
        "detected": f"{summary.detected:,} at a {ERROR_RATES[summary.correction]} of at most "
        f"{summary.alpha:g}",
        "method": _method(summary),
        "detection limit": limit_line(summary.detection_limit),
        "unknown mass": _unknown(summary),
    }
    if summary.indistinguishable:
        lines["can't be told apart"] = (
            f"{summary.indistinguishable:,} candidates set the same bits as another one; "
            "more cohorts or bits would part them"
        )
    return lines


def _unknown(summary: Summary) -> str:
    if math.isnan(summary.unknown_share):
        return "not known: the detected strings can't be told from it"
    half_width = Z_CONFIDENCE * summary.unknown_std_error
    return (
        f"{summary.unknown_share:.1%} ± {half_width:.1%} of the reports hold none of the "
        "detected strings"
    )


def _method(summary: Summary) -> str:
    text = summary.method + (f", {summary.method_reason}" if summary.method_reason else "")
    if math.isnan(summary.duality_gap):
        return text
    return f"{text}; the log-likelihood is at most {summary.duality_gap:.2g} below its maximum"
