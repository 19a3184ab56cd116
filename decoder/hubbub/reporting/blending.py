"""Blended strings as estimates: what listed strings have, both groups' figures, and their test.

Columns of listed strings hold the blended figures; what they were made of comes after them.
"""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from hubbub.inference.anomalies import AnomalyReport
from hubbub.inference.blending.decoding import LEVEL, Blending, BlendSummary
from hubbub.inference.testing.intervals import CONFIDENCE, Z_CONFIDENCE
from hubbub.reporting.blocks import Section
from hubbub.reporting.charts import Labels, Series, XYChart
from hubbub.reporting.estimates import Estimates, Finding, Level, as_facts
from hubbub.reporting.provenance import Provenance
from hubbub.reporting.strings import Additions, label, string_findings, strings_estimates
from hubbub.reporting.text import visible

NUMBERS = (
    *("local", "local_std_error", "central", "central_std_error"),
    *("central_weight", "difference_p_value"),
)
"""Columns besides those of listed strings, all of them shares or chances."""
_NAMED = 5  # as many as fit on a line or two
_ON_CHART = 200  # more points hide each other
_LOCAL_ALONE = "detection_limit", "not_listed", "if_forged"
_BLENDED = (
    "Shares are of the population from which both groups are taken to be drawn, the reports and "
    "the opted-in users; each group's share weighs as much as it is sure. Counts are of as many "
    "people as there are reports."
)


def blended_estimates(
    blending: Blending,
    anomalies: AnomalyReport | None = None,
    provenance: Provenance | None = None,
    detected_only: bool = False,
    limit: int = 40,
) -> Estimates:
    """Return blended estimates and tests of each candidate.

    Parameters
    ----------
    blending : Blending
        Both groups' figures.
    anomalies, provenance, detected_only, limit
        As of `strings_estimates`.
    """
    summary, blended = blending.summary, blend_findings(blending.summary)
    chart = groups_chart(blending)
    compared = Section(
        "Reports and opted-in users",
        (_BLENDED,),
        as_facts(blended),
        charts=(chart,) if chart else (),
    )
    findings: list[Finding] = []
    for each in string_findings(blending.decoding, anomalies):
        alone = each.code in _LOCAL_ALONE
        findings.append(each._replace(text=f"{each.text} (local reports alone)") if alone else each)
        if each.code == "detected":
            findings += blended
    more = Additions(
        findings=tuple(findings),
        numbers={name: getattr(blending, name) for name in NUMBERS},
        metadata={"blend": {**asdict(summary), "differs": summary.differs}},
        sections=(compared,),
    )
    return strings_estimates(blending.decoding, anomalies, provenance, detected_only, limit, more)


def blend_findings(summary: BlendSummary) -> tuple[Finding, ...]:
    """Return what was blended, and whether it may be."""
    delta = f" and delta {summary.delta:g}" if summary.delta else ""
    release = (
        f"{visible(summary.release)}: {summary.users:,.0f} opted-in users at epsilon "
        f"{summary.epsilon:g}{delta}; noise of standard deviation {summary.noise_std_dev:.3g} "
        f"in each count ({summary.mechanism})"
    )
    strings = (
        f"{summary.blended:,} candidates; local figures alone: {summary.not_released:,}. "
        f"{summary.not_listed:,} of the release's {summary.keys:,} keys are left out, because "
        "no candidate has them"
    )
    local = f"{summary.local_detected:,} by the reports alone"
    return (
        Finding("detected_locally", "detected locally", local, summary.local_detected),
        Finding("blended_with", "blended with", release, summary.release),
        Finding("blended_strings", "blended strings", strings, summary.blended),
        population_finding(summary),
    )


def population_finding(summary: BlendSummary) -> Finding:
    """Return what the test says of both groups' being drawn from one population."""
    found = Finding("same_population", "same population?", "", summary.p_value)
    if math.isnan(summary.p_value):
        return found._replace(
            text="not known: no string is common enough to compare the groups by; it is assumed"
        )
    tested = f"p = {summary.p_value:.2g}, Bonferroni over {summary.compared:,} strings"
    if not summary.differs:
        return found._replace(
            text=f"no difference seen ({tested}); small differences would not show"
        )
    named = ", ".join(visible(string) for string in summary.different[:_NAMED])
    more = len(summary.different) - _NAMED
    text = (
        f"NO: the groups differ in {named}{f' and {more:,} more' if more > 0 else ''} ({tested}); "
        "blended figures mix two populations and are right for neither. Leave out --blend"
    )
    return found._replace(text=text, level=Level.WARNING)


def groups_chart(blending: Blending) -> XYChart | None:
    """Draw local against central shares of the strings by which the groups were compared."""
    compared = np.flatnonzero(~np.isnan(blending.difference_p_value))
    if not len(compared):
        return None
    order = np.argsort(-blending.decoding.share[compared], kind="stable")
    rows = compared[order][:_ON_CHART]
    local, central = 100 * blending.local[rows], 100 * blending.central[rows]
    half = (
        100
        * Z_CONFIDENCE
        * np.hypot(blending.local_std_error[rows], blending.central_std_error[rows])
    )
    differ = set(blending.summary.different)
    names = tuple(
        label(blending.decoding, row) if blending.decoding.candidates[row] in differ else ""
        for row in rows.tolist()
    )
    top = float(max(local.max(), central.max(), 0.0))
    described = (
        f"The {len(rows):,} most common strings by which the groups were compared; bars are "
        f"{CONFIDENCE:.0%} intervals of the difference, one string by itself. Strings by which the "
        f"groups differ at a level of {LEVEL:g} for all together are named: "
        f"{', '.join(filter(None, names)) or 'none'}."
    )
    words = Labels(
        "groups", "Both groups' shares", described, "opted-in users (%)", "local reports (%)"
    )
    ends = np.array([0.0, top])
    return XYChart(
        words,
        (
            Series("strings", central, local, "points", local - half, local + half, names),
            Series("no difference", ends, ends, "reference"),
        ),
    )
