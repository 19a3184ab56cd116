"""Decoded strings as estimates: one row per candidate, a summary, a page.

Numbers that the data don't determine (see `Summary.indistinguishable`) are nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from hubbub.inference import (
    Z_CONFIDENCE,
    AnomalyReport,
    Decoding,
    FloatArray,
    IntArray,
    share_interval,
)
from hubbub.reporting.estimates import (
    Column,
    Computed,
    Estimates,
    Section,
    Table,
    Values,
    as_facts,
    table_of,
)
from hubbub.reporting.findings import Finding
from hubbub.reporting.text import shortened, visible
from hubbub.reporting.wording import (
    SHARE_COLUMNS,
    Provenance,
    anomaly_findings,
    certainty,
    decoded_estimates,
    detected_finding,
    epsilon_findings,
    forgery_finding,
    limit_line,
    percent,
    repeats_findings,
    share_chart,
    share_table,
)

_HONEST = "Do the reports look honest?"
_REFIT = (
    "Shares are unbiased; intervals hold given that a string was detected. Refit shares are for "
    "adding up: none is negative, and with the unknown mass they are 1."
)
_ROWS_IN_REPORT = 1_000  # strings in its table
_TOP = 30  # strings in the chart of intervals
_TESTS = ("refit", "p_value", "q_value")
COLUMNS = ("string", *SHARE_COLUMNS, *_TESTS, "detected", "group")
_NAMED = 3  # of a group, besides its first string
_IN_HEADLINE, _COLUMNS = 3, 40  # strings, and columns of each: the headline stays on two lines


def strings_estimates(
    decoding: Decoding,
    anomalies: AnomalyReport | None = None,
    provenance: Provenance | None = None,
    detected_only: bool = False,
    limit: int = 40,
    findings: tuple[Finding, ...] = (),
    more: Mapping[str, FloatArray] | None = None,
    metadata: Mapping[str, object] | None = None,
) -> Estimates:
    """Return the estimates and tests of each candidate, in the candidates' order.

    `limit`: most rows that a terminal shows. Of strings that nobody listed `findings` are others
    than `string_findings`, and there are `more` columns of numbers and metadata.
    """
    if detected_only:
        shown = decoding.largest_detected()
        n_rows = len(shown)
    else:
        shown = strongest_first(decoding, limit)
        n_rows = len(decoding.candidates) - len(decoding.same_bits.rows)
    honesty = Section(_HONEST, ("Not known: only counts were given, not single reports.",))
    if anomalies:
        honesty = Section(_HONEST, facts=as_facts(anomaly_findings(anomalies)))
    return decoded_estimates(
        headline(decoding),
        (_found_section(decoding),),
        provenance,
        columns=_columns(decoding, detected_only, more or {}),
        keys=("string",),
        findings=findings or string_findings(decoding, anomalies),
        summary=decoding.summary,
        anomalies=anomalies,
        metadata=metadata,
        view=(
            _share_table(
                decoding,
                "Candidates, strongest first",
                shown[:limit],
                n_rows,
                (("p", "{p_value:.1e}"), ("q", "{q_value:.1e}")),
            ),
        ),
        more=(honesty, Section("Tests", (_REFIT,), tables=_tests_tables(decoding), folded=True)),
    )


def _columns(
    decoding: Decoding, detected_only: bool, more: Mapping[str, FloatArray]
) -> dict[str, Column]:
    """Return the columns; each is computed when it is read."""
    rows = np.arange(len(decoding.candidates))
    if detected_only:
        rows = np.flatnonzero(decoding.detected)
    shares = (decoding.share, decoding.std_error, decoding.low, decoding.high)
    tests = (decoding.constrained_share, decoding.p_value, decoding.q_value)

    def counts(values: FloatArray, part: IntArray) -> FloatArray:
        return values[part] * decoding.summary.reports

    def strings(part: IntArray) -> Values:
        return [decoding.candidates[row] for row in part.tolist()]

    def truths(part: IntArray) -> list[bool]:
        listed: list[bool] = decoding.detected[part].tolist()
        return listed

    numbers: list[Callable[[IntArray], Values]] = [partial(counts, each) for each in shares]
    numbers += [each.__getitem__ for each in (*shares, *tests)]
    columns: dict[str, tuple[type, Callable[[IntArray], Values]]] = {
        "string": (str, strings),
        **{
            name: (float, each)
            for name, each in zip((*SHARE_COLUMNS, *_TESTS), numbers, strict=True)
        },
        "detected": (bool, truths),
        "group": (str, partial(groups_of, decoding)),
        **{name: (float, values.__getitem__) for name, values in more.items()},
    }
    return {name: Column(kind, Computed(of, rows)) for name, (kind, of) in columns.items()}


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
    """Return a candidate as people see it, with those that set the same bits."""
    others = decoding.same_bits.rows[decoding.same_bits.first == row]
    text = visible(decoding.candidates[row])
    if not len(others):
        return text
    named = ", ".join(visible(decoding.candidates[int(i)]) for i in others[:_NAMED])
    more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    return f"{text} (or {named}{more})"


def _numbers_of(decoding: Decoding, rows: IntArray) -> dict[str, Values]:
    """Return the numbers of some rows that tables for people show: no share is below 0 or above 1.

    Files have the estimates as they are, and of what wasn't detected the usual intervals.
    """
    share, found = decoding.share[rows], decoding.detected[rows]
    low, high = share_interval(share, decoding.std_error[rows])
    return {
        "proportion": np.clip(share, 0.0, 1.0),
        "count": np.clip(share, 0.0, 1.0) * decoding.summary.reports,
        "prop_std_error": decoding.std_error[rows],
        "prop_low": np.where(found, decoding.low[rows], low),
        "prop_high": np.where(found, decoding.high[rows], high),
        "refit": decoding.constrained_share[rows],
        "p_value": decoding.p_value[rows],
        "q_value": decoding.q_value[rows],
    }


def _share_table(
    decoding: Decoding,
    title: str,
    rows: IntArray,
    n_rows: int,
    more: Sequence[tuple[str, str]] = (),
) -> Table:
    found = zip(decoding.detected[rows].tolist(), decoding.low[rows].tolist(), strict=True)
    n_reports = decoding.summary.reports
    detected = [certainty(low, n_reports) if is_found else "" for is_found, low in found]
    names = [(label(decoding, row),) for row in rows.tolist()]
    numbers = _numbers_of(decoding, rows)
    return share_table(title, ("string",), names, numbers, detected, more, n_rows)


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


def string_findings(
    decoding: Decoding, anomalies: AnomalyReport | None = None
) -> tuple[Finding, ...]:
    """Return the summary: what was asked, how, and what else there is."""
    summary = decoding.summary
    cohorts = f"{summary.cohorts:,}"
    if summary.empty_cohorts:
        cohorts += f" ({summary.empty_cohorts:,} without reports)"
    method = summary.method + (f", {summary.method_reason}" if summary.method_reason else "")
    if not math.isnan(summary.duality_gap):
        method += f"; the log-likelihood is at most {summary.duality_gap:.2g} below its maximum"
    people = summary.repeats.estimand
    unknown = "not known: it can't be separated from the detected strings"
    if not math.isnan(summary.unknown_share):
        between = mass_interval(summary.unknown_share, summary.unknown_std_error)
        unknown = f"{between} of the {people} hold none of the detected strings"
        if not summary.detected:
            unknown = "all reports: nothing was detected"
    unlisted = "not known: not all candidates' shares can be estimated at once"
    if not math.isnan(summary.unlisted_share):
        between = mass_interval(summary.unlisted_share, summary.unlisted_std_error)
        unlisted = f"{between} of the {people} hold none of the candidates"
    limit = summary.detection_limit
    findings = [
        Finding("reports", "reports", f"{summary.reports:,}", summary.reports),
        *repeats_findings(summary.repeats),
        Finding("cohorts", "cohorts", cohorts, summary.cohorts),
        *epsilon_findings(summary.epsilon_report, summary.epsilon_permanent),
        Finding("candidates", "candidates", f"{summary.candidates:,}", summary.candidates),
        detected_finding(summary.detected, summary.correction, summary.alpha),
        Finding("method", "method", method, summary.method),
        Finding("detection_limit", "detection limit", limit_line(limit), limit),
        Finding("unknown_mass", "unknown mass", unknown, summary.unknown_share),
        Finding("not_listed", "not listed", unlisted, summary.unlisted_share),
    ]
    if not summary.settled:
        text = (
            "didn't settle: the strings in the model and the detected ones still differ a "
            "little; estimates near the limit are less certain than stated"
        )
        findings.append(Finding("search_unsettled", "search", text))
    if summary.indistinguishable:
        text = (
            f"{summary.indistinguishable:,} candidates set the same bits as another one; each "
            "such group shares one estimate and counts once"
        )
        value = summary.indistinguishable
        findings.append(Finding("indistinguishable", "indistinguishable", text, value))
    return (
        *findings,
        *anomaly_findings(anomalies),
        forgery_finding(summary.forged_share, summary.forgery_shift),
    )


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
        return f"{asked}, and none was detected. Limit: {limit_line(summary.detection_limit)}."
    rows = decoding.largest_detected()[:_IN_HEADLINE].tolist()
    named = [
        f"{shortened(label(decoding, row), _COLUMNS)} {percent(float(decoding.share[row]))}"
        for row in rows
    ]
    found = ", ".join(named)
    if summary.detected > len(rows):
        found += f" and {summary.detected - len(rows):,} more strings"
    text = f"{found}: detected among {summary.candidates:,} in {summary.reports:,} reports."
    if math.isnan(summary.unknown_share):
        return text
    between = mass_interval(summary.unknown_share, summary.unknown_std_error)
    return f"{text} {between} of the {summary.repeats.estimand} hold none of them."


def _found_section(decoding: Decoding) -> Section:
    rows = decoding.largest_detected()
    if not len(rows):
        return Section("What was found", ("No string was detected.",))
    top = rows[:_TOP]
    chart = share_chart(
        "estimates",
        "Estimated shares",
        f"share of the {decoding.summary.repeats.estimand}",
        [label(decoding, row) for row in top.tolist()],
        (decoding.share[top], decoding.low[top], decoding.high[top]),
        len(rows),
    )
    title = "Detected strings, largest first"
    table = _share_table(decoding, title, rows[:_ROWS_IN_REPORT], len(rows))
    return Section("What was found", charts=(chart,), tables=(table,))


def _tests_tables(decoding: Decoding) -> tuple[Table, ...]:
    rows = decoding.largest_detected()[:_ROWS_IN_REPORT]
    if not len(rows):
        return ()
    return (
        table_of(
            "Tests of the detected strings",
            [(label(decoding, row),) for row in rows.tolist()],
            _numbers_of(decoding, rows),
            (
                ("standard error", "{prop_std_error:.3%}"),
                ("refit", "{refit:.3%}"),
                ("p", "{p_value:.1e}"),
                ("q", "{q_value:.1e}"),
            ),
            heads=("string",),
        ),
    )
