"""Decoded strings as a result: a row a candidate, a summary, a report.

Numbers that the data don't determine (see `Summary.indistinguishable`) are nan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from hubbub.inference.anomalies import AnomalyReport
from hubbub.inference.arrays import IntArray
from hubbub.inference.decoding import Decoding, Diagnostics
from hubbub.inference.testing.intervals import CONFIDENCE, Z_CONFIDENCE
from hubbub.inference.testing.multiple_testing import p_value_counts
from hubbub.reporting.charts import (
    Histogram,
    IntervalChart,
    Labels,
    ScatterPlot,
    Stack,
    in_percent,
    span_of,
)
from hubbub.reporting.result import (
    ROWS,
    Block,
    Columns,
    Heading,
    Line,
    Report,
    Section,
    Table,
    Types,
    headings,
)
from hubbub.reporting.text import shortened, visible
from hubbub.reporting.wording import (
    SHARE_COLUMNS,
    UNCERTAIN,
    DecodedResult,
    anomaly_lines,
    certainty,
    detected_line,
    epsilon_lines,
    forgery_line,
    limit_line,
    privacy_section,
    provenance_section,
    warnings_of,
)

_LEVEL = (
    "If no candidate were present the bars would be level, at the dashed line. Present strings add "
    "to the first bar."
)
_UNKNOWN = "Reports whose string isn't among the detected; what isn't listed can't be found."
_HONEST = "Do the reports look honest?"
_REFIT = (
    "Shares are unbiased; intervals hold given that a string was detected. Refit shares are for "
    "adding up: none is negative, and with the unknown mass they are 1."
)
ROWS_IN_REPORT = 1_000
"""Most strings in the report's table."""
TOP = 30
"""Most strings in the chart of intervals."""
NUMBERS = (*SHARE_COLUMNS, "refit", "p_value", "q_value")
COLUMNS = ("string", *NUMBERS, "detected", "group")
_NOTED = "yes *"
_NAMED = 3  # of a group, besides its first string
_IN_HEADLINE = 60
CHUNK = 16_384
"""Rows that are in memory at once."""


@dataclass(frozen=True, slots=True, repr=False)
class StringsResult(DecodedResult[Decoding]):
    """The estimates and tests of each candidate."""

    @property
    def types(self) -> Types:
        """The columns, the same for all decodings."""
        return {"string": str, **dict.fromkeys(NUMBERS, float), "detected": bool, "group": str}

    def parts(self) -> Iterator[Columns]:
        """Yield the candidates' results, in the candidates' order."""
        decoding = self.decoding
        chosen = np.arange(len(decoding.candidates))
        if self.detected_only:
            chosen = np.flatnonzero(decoding.detected)
        shares = (decoding.share, decoding.std_error, decoding.low, decoding.high)
        tests = (decoding.constrained_share, decoding.p_value, decoding.q_value)
        for start in range(0, len(chosen), CHUNK):
            rows = chosen[start : start + CHUNK]
            columns = [
                [decoding.candidates[i] for i in rows.tolist()],
                *(values[rows] * decoding.summary.reports for values in shares),
                *(values[rows] for values in (*shares, *tests)),
                decoding.detected[rows].tolist(),
                groups_of(decoding, rows),
            ]
            yield dict(zip(COLUMNS, columns, strict=True))

    def document(self) -> Mapping[str, object]:
        """Return "summary", "scrutiny", "provenance" (null where there is none) and "rows"."""
        return self.document_head(self.decoding.summary) | {"rows": ROWS}

    def blocks(self) -> Iterator[Block]:
        """Yield the strongest candidates and the summary."""
        decoding, limit = self.decoding, self.limit
        if self.detected_only:
            order = decoding.largest_detected()
            n_rows = len(order)
        else:
            order, n_rows = strongest_first(decoding, limit), len(decoding.candidates)
            n_rows -= len(decoding.same_bits.rows)
        table = _table(decoding, order[:limit], n_rows)
        yield table
        if any(row[-1] == _NOTED for row in table.rows):
            yield Line(f"* {UNCERTAIN}: the interval reaches 0")
        yield Line("")
        yield summary_lines(decoding, self.anomalies)

    def report(self) -> Report:
        """Return what was found, how sure it is, and where it comes from."""
        decoding, summary, fit = self.decoding, self.decoding.summary, self.decoding.diagnostics
        facts = summary_lines(decoding, self.anomalies)
        unknown = Section("Unknown mass", ("The counts can't tell it.",))
        if not math.isnan(summary.unknown_share):
            unknown = Section("Unknown mass", (_UNKNOWN,), charts=(unknown_chart(decoding),))
        p_values = p_value_chart(decoding)
        fit_charts = (bits_chart(fit), residuals_chart(fit), cohorts_chart(fit.reports))
        honesty = Section(_HONEST, ("Not known: only counts were given, not single reports.",))
        if self.anomalies:
            honesty = Section(_HONEST, facts=anomaly_lines(self.anomalies))
        sections = [
            _found_section(decoding),
            Section("Summary", facts=facts),
            unknown,
            Section("Tests", (_LEVEL,), charts=(p_values,) if p_values else ()),
            Section("Does the model fit?", charts=fit_charts),
            privacy_section(summary.epsilon_report, summary.epsilon_permanent),
            honesty,
            provenance_section(self.provenance),
        ]
        title = f"What the reports{self.of_metric} say"
        return Report(title, headline(decoding), sections, warnings_of(facts))


def groups_of(decoding: Decoding, rows: IntArray) -> list[str]:
    """Return the first string of each candidate's group; empty for those that stand alone."""
    same = decoding.same_bits
    if not len(same.rows):
        return [""] * len(rows)
    places = np.minimum(np.searchsorted(same.rows, rows), len(same.rows) - 1)
    first = np.where(same.rows[places] == rows, same.first[places], rows)
    grouped = np.isin(first, same.first).tolist()
    return [
        decoding.candidates[row] if is_grouped else ""
        for row, is_grouped in zip(first.tolist(), grouped, strict=True)
    ]


def label(decoding: Decoding, row: int) -> str:
    """Return a candidate as people see it, with those that can't be told from it."""
    others = decoding.same_bits.rows[decoding.same_bits.first == row]
    text = visible(decoding.candidates[row])
    if not len(others):
        return text
    named = ", ".join(visible(decoding.candidates[int(i)]) for i in others[:_NAMED])
    more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    return f"{text} (or {named}{more})"


def _table(decoding: Decoding, indices: IntArray, n_rows: int) -> Table:
    rows, styles = [], []
    n_reports = decoding.summary.reports
    for index in map(int, indices):
        low, high = decoding.low[index] * n_reports, decoding.high[index] * n_reports
        share, found = decoding.share[index], bool(decoding.detected[index])
        known = not np.isnan(share)
        sure = certainty(decoding.low[index], n_reports) != UNCERTAIN
        rows.append(
            (
                label(decoding, index),
                f"{share * n_reports:,.0f}" if known else "",
                f"{low:,.0f} … {high:,.0f}" if known else "",
                f"{share:.3%}" if known else "",
                f"{decoding.p_value[index]:.1e}",
                f"{decoding.q_value[index]:.1e}",
                ("yes" if sure else _NOTED) if found else "",
            )
        )
        styles.append("" if found else "dim")
    heads = headings("string", "count", f"{CONFIDENCE:.0%} interval", "share", "p", "q")
    heads += (Heading("detected", "center"),)
    left_out = f"{n_rows - len(rows):,}" if n_rows > len(rows) else ""
    return Table("Candidates, strongest first", heads, tuple(rows), left_out, tuple(styles))


def strongest_first(decoding: Decoding, most: int) -> IntArray:
    """Return the first `most` candidates by detection, then p-value, then estimate."""
    found = decoding.largest_detected()
    wanted, others = most - len(found), decoding.firsts(~decoding.detected)
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
    summary = decoding.summary
    cohorts = f"{summary.cohorts:,}"
    if summary.empty_cohorts:
        cohorts += f" ({summary.empty_cohorts:,} without reports)"
    method = summary.method + (f", {summary.method_reason}" if summary.method_reason else "")
    if not math.isnan(summary.duality_gap):
        method += f"; the log-likelihood is at most {summary.duality_gap:.2g} below its maximum"
    unknown = "not known: the detected strings can't be told from it"
    if not math.isnan(summary.unknown_share):
        between = mass_interval(summary.unknown_share, summary.unknown_std_error)
        unknown = f"{between} of the reports hold none of the detected strings"
        if not summary.detected:
            unknown = "all reports: nothing was detected"
    unlisted = "not known: the candidates are too many to estimate all their shares at once"
    if not math.isnan(summary.unlisted_share):
        between = mass_interval(summary.unlisted_share, summary.unlisted_std_error)
        unlisted = f"{between} of the reports hold none of the candidates"
    lines = {
        "reports": f"{summary.reports:,}",
        "cohorts": cohorts,
        **epsilon_lines(summary.epsilon_report, summary.epsilon_permanent),
        "candidates": f"{summary.candidates:,}",
        "detected": detected_line(summary.detected, summary.correction, summary.alpha),
        "method": method,
        "detection limit": limit_line(summary.detection_limit),
        "unknown mass": unknown,
        "not listed": unlisted,
    }
    if not summary.settled:
        lines["search"] = (
            "didn't settle: what is in the model and what is detected still differ a little; "
            "estimates near the limit are less certain than they say"
        )
    if summary.indistinguishable:
        lines["can't be told apart"] = (
            f"{summary.indistinguishable:,} candidates set the same bits as another one; each such "
            "group has one estimate, and counts once"
        )
    if anomalies:
        lines |= anomaly_lines(anomalies)
    lines["if forged"] = forgery_line(summary.forged_share, summary.forgery_shift)
    return lines


def mass_interval(share: float, std_error: float) -> str:
    """Return the 95% interval of a mass in words; what lies outside of 0 to 100% is cut off."""
    low, high = (share + sign * Z_CONFIDENCE * std_error for sign in (-1, 1))
    low, high = (min(max(bound, 0.0), 1.0) for bound in (low, high))
    return f"{low:.1%} to {high:.1%}"


def headline(decoding: Decoding) -> str:
    """Return what was found, in a sentence."""
    summary = decoding.summary
    asked = f"{summary.reports:,} reports were searched for {summary.candidates:,} strings"
    if not summary.detected:
        if math.isinf(summary.detection_limit):
            return f"{asked}, and none was detected: so few cohorts and hashes can't show any."
        if math.isnan(summary.detection_limit):
            return f"{asked}, and none was detected: no candidate can be told from all others."
        if summary.detection_limit >= 1:
            return f"{asked}, and none was detected: so few reports can't show any."
        return (
            f"{asked}, and none was detected: whatever people hold, none of these strings has "
            f"a share far above {summary.detection_limit:.2%}."
        )
    largest = int(decoding.largest_detected()[0])
    share = f"{decoding.share[largest]:.2%}"
    found = f"{summary.detected:,} were detected" if summary.detected > 1 else "one was detected"
    between = mass_interval(summary.unknown_share, summary.unknown_std_error)
    which = "most often" if summary.detected > 1 else "it is"
    name = shortened(label(decoding, largest), _IN_HEADLINE)
    return (
        f"{asked}: {found}, {which} “{name}” with {share} of "
        f"the reports; {between} of the reports hold none of the detected."
    )


def _found_section(decoding: Decoding) -> Section:
    chosen, chart = decoding.largest_detected(), strongest_chart(decoding)
    if chart is None:
        return Section("What was found", ("No string was detected.",))
    n_reports = decoding.summary.reports
    rows = tuple(
        (
            label(decoding, i),
            f"{decoding.share[i] * n_reports:,.0f}",
            f"{decoding.low[i] * n_reports:,.0f} … {decoding.high[i] * n_reports:,.0f}",
            f"{decoding.share[i]:.3%}",
            f"{decoding.low[i]:.3%} … {decoding.high[i]:.3%}",
            f"{decoding.constrained_share[i]:.3%}",
            f"{decoding.p_value[i]:.1e}",
            f"{decoding.q_value[i]:.1e}",
            certainty(decoding.low[i], n_reports),
        )
        for i in map(int, chosen[:ROWS_IN_REPORT])
    )
    interval = f"{CONFIDENCE:.0%} interval"
    heads = headings("string", "count", interval, "share", interval, "refit", "p", "q")
    heads += (Heading("detected", "left"),)
    left_out = f"{len(chosen) - ROWS_IN_REPORT:,}" if len(chosen) > ROWS_IN_REPORT else ""
    table = Table("Detected strings, largest first", heads, rows, left_out)
    return Section("What was found", (_REFIT,), charts=(chart,), tables=(table,))


def strongest_chart(decoding: Decoding) -> IntervalChart | None:
    """Draw the estimates of the strongest detected strings."""
    shown = decoding.largest_detected()[:TOP]
    if not len(shown):
        return None
    names = [label(decoding, i) for i in shown.tolist()]
    intervals = in_percent(names, decoding.share[shown], decoding.low[shown], decoding.high[shown])
    n_detected = decoding.summary.detected
    described = (
        f"The {len(shown)} largest of {n_detected:,} detected strings, from "
        f"{intervals[0].estimate:.3g}% down to {intervals[-1].estimate:.3g}% of the reports; "
        f"bars are {CONFIDENCE:.0%} intervals."
    )
    labels = Labels("estimates", "Estimated shares", described, "share of the reports")
    return IntervalChart(labels, intervals)


def unknown_chart(decoding: Decoding) -> Stack:
    """Draw the detected strings' share beside the unknown mass."""
    unknown = 100 * min(max(decoding.summary.unknown_share, 0.0), 1.0)
    described = (
        f"{100 - unknown:.3g}% of the reports hold a detected string, {unknown:.3g}% none of them."
    )
    axis = "share of the reports: detected strings (dark), then unknown (light)"
    labels = Labels("unknown", "Unknown mass", described, axis)
    return Stack(labels, [("detected strings", 100 - unknown), ("unknown", unknown)])


def p_value_chart(decoding: Decoding) -> Histogram | None:
    """Draw the p-values of all candidates, and the flat line of absent strings."""
    heights, edges = p_value_counts(decoding.p_value[decoding.firsts(~np.isnan(decoding.share))])
    if decoding.p_value_counts is not None:
        heights = decoding.p_value_counts
    known = int(heights.sum())
    if not known:
        return None
    described = (
        f"{heights[0]:,} of {known:,} candidates have a p-value below 0.05; "
        f"{known / 20:,.4g} would if none were present, as in every bar."
    )
    labels = Labels("p-values", "P-values of all candidates", described, "p-value", "candidates")
    return Histogram(labels, heights.astype(float), edges, np.full(20, known / 20))


def bits_chart(diagnostics: Diagnostics) -> ScatterPlot:
    """Draw observed against fitted rates of bits."""
    seen = diagnostics.reports > 0
    fitted, observed = diagnostics.fitted[seen].ravel(), diagnostics.observed[seen].ravel()
    varied = fitted.std() > 0 and observed.std() > 0
    correlation = np.corrcoef(fitted, observed)[0, 1] if varied else 0.0
    described = (
        f"{len(fitted):,} bits of all cohorts; they lie about the diagonal if the model explains "
        f"the counts. Correlation {correlation:.3f}."
    )
    labels = Labels("bits", "Observed against fitted bits", described, "fitted rate",
                    "observed rate")  # fmt: skip
    return ScatterPlot(labels, fitted, observed)


def residuals_chart(diagnostics: Diagnostics) -> Histogram:
    """Draw standardised residuals beside the normal distribution."""
    seen = diagnostics.reports > 0
    off = (diagnostics.observed - diagnostics.fitted)[seen]
    residuals = (off / diagnostics.std_error[seen]).ravel()
    edges = np.linspace(-5.0, 5.0, 41)
    heights, _ = np.histogram(np.clip(residuals, -5.0, 5.0), bins=edges)
    expected = len(residuals) * np.diff(special.ndtr(edges))
    beyond = int(np.count_nonzero(np.abs(residuals) > 4))
    described = (
        f"{len(residuals):,} residuals in units of their standard deviation, beside the normal "
        f"law: standard deviation {residuals.std():.3f} (expected: about 1), {beyond:,} beyond 4. "
        "The outermost bars hold all that lies further out."
    )
    labels = Labels("residuals", "Residuals", described, "standardised residual", "bits")
    return Histogram(labels, heights.astype(float), edges, expected)


def cohorts_chart(reports: IntArray) -> Histogram:
    """Draw how reports are distributed over cohorts."""
    mean = float(reports.mean())
    described = (
        f"{len(reports):,} cohorts with {reports.min():,} to {reports.max():,} reports, "
        f"{mean:,.1f} on average (the line)."
    )
    labels = Labels("cohorts", "Cohort sizes", described, "cohort", "reports")
    if len(reports) <= 128:
        edges = np.arange(len(reports) + 1, dtype=np.float64)
        return Histogram(labels, reports.astype(float), edges, np.full(len(reports), mean))
    # How many cohorts have so many reports, instead of how many each has.
    span = span_of([float(reports.min()), float(reports.max())])
    heights, edges = np.histogram(reports, bins=32, range=span)
    labels = replace(labels, x="reports", y="cohorts")
    return Histogram(labels, heights.astype(float), edges, np.zeros(len(heights)))
