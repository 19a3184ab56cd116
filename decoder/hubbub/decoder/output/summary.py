"""What a reader must know besides the rows: how much was found, and how far to trust it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.table import Table

from hubbub.decoder.decoding import POWER, Decoding, Summary
from hubbub.decoder.inference.intervals import Z_CONFIDENCE
from hubbub.decoder.inference.multiple_testing import Correction
from hubbub.decoder.reports.scrutiny import Findings

ERROR_RATES = {
    Correction.BH: "false discovery rate",
    Correction.BONFERRONI: "chance of any false detection",
}
SUSPICIOUS = "SUSPICIOUS: "


def summary_table(decoding: Decoding, findings: Findings | None = None) -> Table:
    """Return the summary as two columns, with the scrutiny's findings if there are any."""
    return lines_table(summary_lines(decoding, findings))


def summary_lines(decoding: Decoding, findings: Findings | None = None) -> dict[str, str]:
    """Return the summary's lines by what they are about."""
    lines = _estimation(decoding.summary) | (scrutiny_lines(findings) if findings else {})
    summary = decoding.summary
    lines["if forged"] = forgery_line(summary.forged_share, summary.forgery_shift)
    return lines


def lines_table(lines: Mapping[str, str]) -> Table:
    """Return labels and texts as two columns."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for label, text in lines.items():
        table.add_row(label, text)
    return table


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


def limit_line(share: float) -> str:
    """Return which share is found: any number from 0, inf or nan."""
    if math.isnan(share):
        return "not known: no candidate can be told from all others"
    if math.isinf(share):
        return "none: with so few cohorts and hashes no share can be detected at this level"
    if share >= 1:
        return f"none: so few reports show no share at all with probability {POWER:g}"
    return f"a share of {share:.3%} is found with probability {POWER:g}"


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


def scrutiny_lines(findings: Findings) -> dict[str, str]:
    """Return what the scrutiny found, by what it looked at."""
    return {
        "set bits": _set_bits(findings),
        "repeated reports": _repeats(findings),
        "cohort sizes": _balance(findings),
    }


def _set_bits(findings: Findings) -> str:
    low, high = findings.plausible
    if findings.improbable:
        return (
            f"{SUSPICIOUS}{findings.improbable:,} reports don't have {low:,} to {high:,} set "
            "bits; honest clients would send none"
        )
    if not findings.set_bits_assessed:
        return "not assessable: with so few bits honest reports have any number of them"
    return f"all reports have {low:,} to {high:,}, as honest ones would"


def _repeats(findings: Findings) -> str:
    repeats = findings.repeats
    if not repeats.assessed:
        return "not assessable: with so few bits or so little noise honest reports repeat too"
    looked_at = f"of {repeats.sampled:,} reports looked at"
    if repeats.suspicious:
        return (
            f"{SUSPICIOUS}{repeats.suspicious:,} {looked_at} repeat others to the bit: one occurs "
            f"{repeats.most:,} times, where at most {repeats.plausible:,} is plausible"
        )
    return f"{looked_at} none repeats more often than honest ones might"


def _balance(findings: Findings) -> str:
    balance = findings.balance
    if not findings.cohorts_assessed:
        return "not assessable: there is only one"
    worst = f"cohort {balance.cohort} has {balance.ratio:.2f} times the mean"
    if findings.cohorts_suspicious:
        return (
            f"{SUSPICIOUS}{worst}; honest only if some client sent more than "
            f"{balance.clients_must_send:,.0f} reports"
        )
    return f"{worst}, as honest clients' might"


def forgery_line(forged_share: float, forgery_shift: float) -> str:
    """Return how far forged reports could move an estimate."""
    return (
        f"if {forged_share:.0%} of these reports were forged, an estimated share could "
        f"move by at most {100 * forgery_shift:.1f} percentage points"
    )
