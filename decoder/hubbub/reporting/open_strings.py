"""Open strings as estimates: the detected strings, and what was tried.

Rows are the detected strings and the candidates that were given; what was proposed and not detected
is a model's invention, and only counted. Prefixes may end inside a character: they are shown with
what is whole of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from hubbub.inference import AnomalyReport, OpenDecoding
from hubbub.protocol import TERMINATOR, counted
from hubbub.reporting.estimates import Estimates
from hubbub.reporting.findings import Finding
from hubbub.reporting.strings import string_findings, strings_estimates
from hubbub.reporting.text import visible
from hubbub.reporting.wording import Provenance

_NAMED = 5  # as many as fit on a line or two


def open_estimates(
    found: OpenDecoding,
    anomalies: AnomalyReport | None = None,
    provenance: Provenance | None = None,
    detected_only: bool = False,
    limit: int = 40,
) -> Estimates:
    """Return the detected strings, and how they were come by."""
    return strings_estimates(
        found.decoding, anomalies, provenance, detected_only, limit,
        open_findings(found, anomalies),
        {"chance_false": found.chance_false},
        {"search": _search_json(found)},
    )  # fmt: skip


def _search_json(found: OpenDecoding) -> dict[str, object]:
    """Return what was tried at each step."""
    steps = [
        {
            "bytes": step.length,
            "reports": step.reports,
            "tried": step.tried,
            "detected": [
                {"prefix": prefix_text(text), "proportion": share}
                for text, share in zip(step.texts, step.share.tolist(), strict=True)
            ],
            "prop_std_error": step.std_error,
            "unexplained": step.unexplained,
        }
        for step in found.steps
    ]
    search = {"proposed": found.proposed, "listed": found.listed, "below": found.below}
    return {**search, "steps": steps, "unexplained": _unexplained_json(found)}


def _unexplained_json(found: OpenDecoding) -> list[dict[str, object]]:
    return [
        {
            "prefix": prefix_text(each.prefix),
            "proportion": each.share,
            "prop_low": each.low,
            "prop_high": each.high,
            "strings": each.strings,
        }
        for each in found.unexplained
    ]


def prefix_text(text: bytes) -> str:
    """Return a prefix as text, with an ellipsis for what is cut off of its last character."""
    whole = text.endswith(TERMINATOR)
    shown = text.removesuffix(TERMINATOR).decode(errors="ignore")
    return shown if whole else f"{shown}…"


def open_findings(
    found: OpenDecoding, anomalies: AnomalyReport | None = None
) -> tuple[Finding, ...]:
    """Return the findings of listed strings with those about the search."""
    findings: list[Finding] = []
    for each in string_findings(found.decoding, anomalies):
        if each.code == "candidates":
            findings += _search_findings(found)
        elif each.code != "not_listed":
            findings.append(each)
        if each.code == "unknown_mass":
            findings += _not_found(found)
    return tuple(findings)


def _search_findings(found: OpenDecoding) -> Iterator[Finding]:
    if found.below:
        text = f"strings that begin with {visible(found.below)}"
        yield Finding("below", "looked for", text, found.below)
    for number, step in enumerate(found.steps, 1):
        text = (
            f"{step.reports:,} reports, {step.tried:,} prefixes looked for, "
            f"{len(step.texts):,} stand out, {step.unexplained:.0%} begin as none of them"
        )
        label = f"step {number}, {counted(step.length, 'byte')}"
        yield Finding(f"step_{number}", label, text, len(step.texts))
    text = f"{counted(found.proposed, 'proposed string')} tested"
    if found.listed:
        text += f", and {counted(found.listed, 'candidate')}"
    text += ", by all reports that show them whole"
    yield Finding("last_step", "whole strings", text, found.proposed)


def _not_found(found: OpenDecoding) -> Iterator[Finding]:
    """Say what wasn't found: below common beginnings, and what nothing shows."""
    if found.unexplained:
        named = [
            f"{each.share:.2%} ({each.low:.2%} to {each.high:.2%}) begin with "
            f"{visible(prefix_text(each.prefix))}: "
            + (
                f"{each.strings:,} found below make up less than half"
                if each.strings
                else "nothing below it was found"
            )
            for each in found.unexplained[:_NAMED]
        ]
        more = len(found.unexplained) - len(named)
        text = "; ".join(named) + (f"; and {more:,} more" if more else "")
        text += "; --extend looks closer"
        yield Finding("beginnings", "beginnings without strings", text, _unexplained_json(found))
    text = "strings that are rare, unlike all others, or don't begin like any common string"
    least = None
    if found.steps:
        least = max(step.noticed for step in found.steps)
        text += f"; a beginning with a share below about {least:.2%} may go unnoticed"
    yield Finding("may_be_missed", "may be missed", text, least)
