"""A decoding of strings -> one HTML report: what was found, how sure it is, where it comes from."""

from __future__ import annotations

import math
from typing import BinaryIO

from hubbub.decoder.decoding import Decoding
from hubbub.decoder.html.figures import (
    bits_chart,
    cohorts_chart,
    p_value_chart,
    residuals_chart,
    strongest_chart,
    unknown_chart,
)
from hubbub.decoder.html.page import (
    Section,
    Table,
    privacy_section,
    provenance_section,
    write_page,
)
from hubbub.decoder.inference.intervals import CONFIDENCE
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.output.strings import largest_detected, visible
from hubbub.decoder.output.summary import SUSPICIOUS, scrutiny_lines, summary_lines
from hubbub.decoder.reports.scrutiny import Findings

_LEVEL = (
    "If no candidate were present the bars would be level, at the dashed line. Present strings add "
    "to the first bar."
)
_REFIT = (
    "Shares are unbiased; intervals hold given that a string was detected. Refit shares are for "
    "adding up: none is negative, and with the unknown mass they are 1."
)
ROWS = 1_000
"""Most strings in the report's table."""


def write_report(
    file: BinaryIO,
    decoding: Decoding,
    *,
    findings: Findings | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write a decoding as one self-contained page.

    Parameters
    ----------
    file : binary file
    decoding : Decoding
    findings : Findings, optional
        What the scrutiny of single reports found.
    provenance : Provenance, optional
    """
    name = f" of {visible(provenance.metric)}" if provenance else ""
    lines = summary_lines(decoding, findings)
    warnings = [f"{label}: {text}" for label, text in lines.items() if SUSPICIOUS in text]
    summary = decoding.summary
    sections = [
        _found(decoding),
        Section("Summary", facts=tuple(lines.items())),
        _unknown(decoding),
        _tests(decoding),
        _fit(decoding),
        privacy_section(summary.epsilon_report, summary.epsilon_permanent),
        _honesty(findings),
        provenance_section(provenance),
    ]
    write_page(file, f"What the reports{name} say", headline(decoding), sections, warnings=warnings)


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
    largest = int(largest_detected(decoding)[0])
    share = f"{decoding.share[largest]:.2%}"
    found = f"{summary.detected:,} were detected" if summary.detected > 1 else "one was detected"
    which = "most often" if summary.detected > 1 else "it is"
    return (
        f"{asked}: {found}, {which} “{visible(decoding.candidates[largest])}” with {share} of "
        f"the reports; {summary.unknown_share:.1%} of the reports hold none of the detected."
    )


def _found(decoding: Decoding) -> Section:
    chosen = largest_detected(decoding)
    if not len(chosen):
        return Section("What was found", ("No string was detected.",))
    n_reports = decoding.summary.reports
    rows = tuple(
        (
            visible(decoding.candidates[i]),
            f"{decoding.share[i] * n_reports:,.0f}",
            f"{decoding.low[i] * n_reports:,.0f} … {decoding.high[i] * n_reports:,.0f}",
            f"{decoding.share[i]:.3%}",
            f"{decoding.low[i]:.3%} … {decoding.high[i]:.3%}",
            f"{decoding.refit[i]:.3%}",
            f"{decoding.p_value[i]:.1e}",
            f"{decoding.q_value[i]:.1e}",
        )
        for i in map(int, chosen[:ROWS])
    )
    interval = f"{CONFIDENCE:.0%} interval"
    header = ("string", "count", interval, "share", interval, "refit", "p", "q")
    left_out = f"{len(chosen) - ROWS:,}" if len(chosen) > ROWS else ""
    chart = strongest_chart(decoding)
    return Section(
        "What was found",
        charts=(chart,) if chart else (),
        paragraphs=(_REFIT,),
        tables=(Table("Detected strings, largest first", header, rows, left_out),),
    )


def _unknown(decoding: Decoding) -> Section:
    if math.isnan(decoding.summary.unknown_share):
        return Section("Unknown mass", ("The counts can't tell it.",))
    return Section(
        "Unknown mass",
        ("Reports whose string isn't among the detected; what isn't listed can't be found.",),
        charts=(unknown_chart(decoding),),
    )


def _tests(decoding: Decoding) -> Section:
    chart = p_value_chart(decoding)
    return Section(
        "Tests",
        (_LEVEL,),
        charts=(chart,) if chart else (),
    )


def _fit(decoding: Decoding) -> Section:
    diagnostics = decoding.diagnostics
    charts = (
        bits_chart(diagnostics),
        residuals_chart(diagnostics),
        cohorts_chart(diagnostics.reports),
    )
    return Section("Does the model fit?", charts=charts)


def _honesty(findings: Findings | None) -> Section:
    title = "Do the reports look honest?"
    if findings is None:
        return Section(title, ("Not known: only counts were given, not single reports.",))
    return Section(title, facts=tuple(scrutiny_lines(findings).items()))
