"""Blended strings as a result: what listed strings have, both groups' figures, and their test.

Columns of listed strings hold the blended figures; what they were made of comes after them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from hubbub.inference.blending.decoding import LEVEL, Blending, BlendSummary
from hubbub.inference.testing.intervals import CONFIDENCE, Z_CONFIDENCE
from hubbub.reporting.charts import Labels, Series, XYChart
from hubbub.reporting.result import Block, Columns, Report, Section, Types
from hubbub.reporting.strings import CHUNK, StringsResult, label, summary_lines
from hubbub.reporting.text import visible
from hubbub.reporting.wording import DecodedResult

NUMBERS = (
    *("local", "local_std_error", "central", "central_std_error"),
    *("central_weight", "difference_p_value"),
)
"""Columns besides those of listed strings, all of them shares or chances."""
_NAMED = 5
_ON_CHART = 200
_LOCAL_ALONE = "detection limit", "not listed", "if forged"
_BLENDED = (
    "Shares are of the population from which both groups are taken to be drawn, the reports and "
    "the opted-in users; each group's share weighs as much as it is sure. Counts are of as many "
    "people as there are reports."
)


@dataclass(frozen=True, slots=True, repr=False)
class BlendedResult(DecodedResult[Blending]):
    """Blended estimates and tests of each candidate."""

    @property
    def types(self) -> Types:
        """The columns of listed strings, and those that are blended."""
        return {**self._strings.types, **dict.fromkeys(NUMBERS, float)}

    def parts(self) -> Iterator[Columns]:
        """Yield the candidates' results, in the candidates' order."""
        decoding = self.decoding.decoding
        chosen = np.arange(len(decoding.candidates))
        if self.detected_only:
            chosen = np.flatnonzero(decoding.detected)
        for part, start in zip(self._strings.parts(), range(0, len(chosen), CHUNK), strict=True):
            rows = chosen[start : start + CHUNK]
            yield {**part, **{name: getattr(self.decoding, name)[rows] for name in NUMBERS}}

    def document(self) -> Mapping[str, object]:
        """Return what listed strings have, and "blend": the release, and the groups' test."""
        summary = self.decoding.summary
        return {
            **self._strings.document(),
            "blend": {**asdict(summary), "differs": summary.differs},
        }

    def blocks(self) -> Iterator[Block]:
        """Yield the strongest candidates and the summary."""
        for block in self._strings.blocks():
            yield self._lines(block) if isinstance(block, Mapping) else block

    def report(self) -> Report:
        """Return the page of listed strings, and the two groups beside each other."""
        page, summary = self._strings.report(), self.decoding.summary
        facts = self._lines(summary_lines(self.decoding.decoding, self.anomalies))
        sections = [
            Section(each.title, facts=facts) if each.title == "Summary" else each
            for each in page.sections
        ]
        chart = groups_chart(self.decoding)
        compared = Section(
            "Reports and opted-in users",
            (_BLENDED,),
            blend_lines(summary),
            charts=(chart,) if chart else (),
        )
        sections.insert(1, compared)
        warnings = list(page.warnings)
        if summary.differs:
            warnings.append(f"Same population? {population_line(summary)}")
        return Report(page.title, page.headline, sections, warnings)

    @property
    def _strings(self) -> StringsResult:
        return StringsResult(
            self.decoding.decoding,
            self.anomalies,
            self.provenance,
            self.detected_only,
            self.limit,
        )

    def _lines(self, lines: Mapping[str, str]) -> dict[str, str]:
        """Return the lines of listed strings with those about the blend."""
        described: dict[str, str] = {}
        for about, text in lines.items():
            described[about] = f"{text} (local reports alone)" if about in _LOCAL_ALONE else text
            if about == "detected":
                described |= blend_lines(self.decoding.summary)
        return described


def blend_lines(summary: BlendSummary) -> dict[str, str]:
    """Return what was blended, and whether it may be."""
    delta = f" and delta {summary.delta:g}" if summary.delta else ""
    return {
        "detected locally": f"{summary.local_detected:,} by the reports alone",
        "blended with": (
            f"{visible(summary.release)}: {summary.users:,.0f} opted-in users at epsilon "
            f"{summary.epsilon:g}{delta}; noise of standard deviation {summary.noise_std_dev:.3g} "
            f"in each count ({summary.mechanism})"
        ),
        "blended strings": (
            f"{summary.blended:,} candidates; local figures alone: {summary.not_released:,}. "
            f"{summary.not_listed:,} of the release's {summary.keys:,} keys are left out, for no "
            "candidate names them"
        ),
        "same population?": population_line(summary),
    }


def population_line(summary: BlendSummary) -> str:
    """Return what the test says of both groups' being drawn from one population."""
    if math.isnan(summary.p_value):
        return "not known: no string is common enough to compare the groups by; it is assumed"
    tested = f"p = {summary.p_value:.2g}, Bonferroni over {summary.compared:,} strings"
    if not summary.differs:
        return f"no difference seen ({tested}), which small differences would not show"
    named = ", ".join(visible(string) for string in summary.different[:_NAMED])
    more = len(summary.different) - _NAMED
    return (
        f"NO: the groups differ in {named}{f' and {more:,} more' if more > 0 else ''} ({tested}); "
        "blended figures mix two populations, and are right about neither. Leave --blend out"
    )


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
