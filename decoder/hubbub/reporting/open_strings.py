"""Open strings as a result: the detected strings, what was tried, and the tree of prefixes.

Rows are the detected strings and the candidates that were given; what was proposed and not detected
is a model's invention, and only counted. Prefixes may end inside a character: they are shown with
what is whole of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hubbub.inference.decoding import Decoding
from hubbub.inference.open_strings.decoding import OpenDecoding
from hubbub.inference.open_strings.search import FoundPrefixes
from hubbub.protocol.metric_types.open_strings import TERMINATOR
from hubbub.reporting.charts import Labels, Tree, TreeNode
from hubbub.reporting.result import Block, Columns, Report, Section, Types
from hubbub.reporting.strings import StringsResult, summary_lines
from hubbub.reporting.text import visible
from hubbub.reporting.wording import DecodedResult

_SHOWN = 40
_TREE = (
    "Each column is a step's own reports, and a box as high as the share of what was detected "
    "there, beside the prefix that it begins with. Only the last column was tested."
)


@dataclass(frozen=True, slots=True, repr=False)
class OpenStringsResult(DecodedResult[OpenDecoding]):
    """The detected strings, and how they were come by."""

    @property
    def types(self) -> Types:
        """The columns, the same as of listed strings."""
        return self._strings.types

    def parts(self) -> Iterator[Columns]:
        """Yield the rows."""
        return self._strings.parts()

    def document(self) -> Mapping[str, object]:
        """Return what listed strings have, and "search": what was tried at each step."""
        found = self.decoding
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
            }
            for step in found.steps
        ]
        search = {"proposed": found.proposed, "listed": found.listed, "below": found.below}
        return {**self._strings.document(), "search": {**search, "steps": steps}}

    def blocks(self) -> Iterator[Block]:
        """Yield the strongest strings and the summary."""
        for block in self._strings.blocks():
            yield open_lines(self.decoding, block) if isinstance(block, Mapping) else block

    def report(self) -> Report:
        """Return the page of listed strings, and the tree of prefixes."""
        page = self._strings.report()
        facts = open_lines(self.decoding, summary_lines(self.decoding.decoding, self.anomalies))
        sections = [
            Section(each.title, facts=facts) if each.title == "Summary" else each
            for each in page.sections
        ]
        tree = tree_chart(self.decoding)
        if tree:
            sections.insert(1, Section("From prefixes to strings", (_TREE,), charts=(tree,)))
        return Report(page.title, page.headline, sections, page.warnings)

    @property
    def _strings(self) -> StringsResult:
        return StringsResult(
            self.decoding.decoding,
            self.anomalies,
            self.provenance,
            self.detected_only,
            self.limit,
        )


def prefix_text(text: bytes) -> str:
    """Return a prefix as text, without what is cut off of its last character.

    An ellipsis stands for what goes on.
    """
    whole = text.endswith(TERMINATOR)
    shown = text.removesuffix(TERMINATOR).decode(errors="ignore")
    return shown if whole else f"{shown}…"


def open_lines(found: OpenDecoding, lines: Mapping[str, str]) -> dict[str, str]:
    """Return the lines of listed strings with those about the search."""
    described: dict[str, str] = {}
    for label, text in lines.items():
        if label == "candidates":
            described |= _search_lines(found)
        elif label != "not listed":
            described[label] = text
        if label == "unknown mass":
            described["may be missed"] = _missed(found)
    return described


def _search_lines(found: OpenDecoding) -> dict[str, str]:
    lines = {}
    if found.below:
        lines["looked for"] = f"strings that begin with {visible(found.below)}"
    for number, step in enumerate(found.steps, 1):
        lines[f"step {number}, {step.length} bytes"] = (
            f"{step.reports:,} reports, {step.tried:,} prefixes looked for, "
            f"{len(step.texts):,} of them there"
        )
    reports = int(found.decoding.diagnostics.reports.sum())
    tested = f"{reports:,} reports, {found.proposed:,} proposed strings tested"
    if found.listed:
        tested += f", and {found.listed:,} candidates"
    return {**lines, "last step, whole strings": tested}


def _missed(found: OpenDecoding) -> str:
    text = "strings that are rare, or unlike all others, or begin as no common string does"
    if found.steps:
        weakest = max(step.std_error for step in found.steps)
        text += f"; below a share of about {5 * weakest:.2%} a beginning may go unnoticed"
    return text


def tree_chart(found: OpenDecoding) -> Tree | None:
    """Draw the prefixes that were found at each step, and the detected strings."""
    decoding = found.decoding
    columns = [_nodes_of_step(step) for step in found.steps]
    columns.append(_nodes_of_strings(decoding))
    if not any(columns):
        return None
    heads = (*(f"{step.length} bytes" for step in found.steps), "whole")
    names = ", ".join(node.label for node in columns[-1][:5])
    described = (
        f"What was detected at {len(found.steps)} lengths of prefixes and of whole strings, the "
        f"most common of each; of whole strings: {names or 'none'}."
    )
    labels = Labels("tree", "From prefixes to strings", described, "step", "share of the reports")
    return Tree(labels, heads, tuple(tuple(column) for column in columns))


def _nodes_of_step(step: FoundPrefixes) -> list[TreeNode]:
    return [
        TreeNode(visible(prefix_text(text)), text.removesuffix(TERMINATOR), 100 * share)
        for text, share in zip(step.texts[:_SHOWN], step.share[:_SHOWN].tolist(), strict=True)
    ]


def _nodes_of_strings(decoding: Decoding) -> list[TreeNode]:
    rows = decoding.largest_detected()[:_SHOWN].tolist()
    return [
        TreeNode(
            visible(decoding.candidates[row]),
            decoding.candidates[row].encode(),
            100 * float(decoding.share[row]),
        )
        for row in rows
    ]
