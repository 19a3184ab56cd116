"""Estimates of each value of a dimension, put side by side: rows, findings, tables and pages.

Invariant: a row is what it is in its own estimates; nothing is tested or corrected again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from hubbub.reporting.blocks import Block, Line, Page, Section, Values
from hubbub.reporting.estimates import Column, Estimates, Finding
from hubbub.reporting.wording import first_charts


def side_by_side(
    dimension: str,
    parts: Mapping[str, Estimates],
    refused: Mapping[str, str],
    said: Sequence[Finding] = (),
) -> Estimates:
    """Return the estimates of several values as one.

    `dimension`: names the first column. `parts`: by value; at least one, all with the same columns.
    `refused`: why other values have no estimates. `said`: what is said of all values together.
    """
    first = next(iter(parts.values()))
    names = [value for value, part in parts.items() for _ in range(len(part))]
    columns = {dimension: Column(str, names)}
    for name, column in first.columns.items():
        columns[name] = Column(column.type, _joined([part[name] for part in parts.values()]))
    left_out = tuple(
        Finding(f"left_out:{value}", f"{dimension}={value} left out", why)
        for value, why in refused.items()
    ) + tuple(said)
    findings = [
        each._replace(code=f"{each.code}:{value}", label=f"{each.label} ({dimension}={value})")
        for value, part in parts.items()
        for each in part.findings
    ]
    page = _page(dimension, parts, left_out)
    return Estimates(
        columns=columns,
        keys=(dimension, *first.keys),
        findings=(*findings, *left_out),
        metadata={"by": dimension, "slices": {name: each.metadata for name, each in parts.items()}},
        view=tuple(_blocks(dimension, parts, left_out)),
        page=page,
        charts=() if page is None else first_charts(page),
    )


def _joined(values: Sequence[Values]) -> Any:
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    return list(chain.from_iterable(values))


def _blocks(
    dimension: str, parts: Mapping[str, Estimates], left_out: Sequence[Finding]
) -> list[Block]:
    blocks: list[Block] = []
    for value, part in parts.items():
        blocks += [Line(f"{dimension} = {value}"), *part.blocks(), Line("")]
    blocks += [Line(f"{each.label}: {each.text}") for each in left_out]
    return blocks if left_out else blocks[:-1]


def _page(
    dimension: str, parts: Mapping[str, Estimates], left_out: Sequence[Finding]
) -> Page | None:
    pages = {value: part.page for value, part in parts.items() if part.page is not None}
    if not pages:
        return None
    sections = [
        replace(section, title=f"{dimension} {value}: {section.title}")
        for value, page in pages.items()
        for section in page.sections
    ]
    if left_out:
        said = tuple(f"{each.label}: {each.text}" for each in left_out)
        sections.append(Section("Left out", said))
    title = next(iter(pages.values())).title
    headline = " ".join(f"{value}: {page.headline}" for value, page in pages.items())
    warnings = [
        f"{dimension} {value}: {warning}"
        for value, page in pages.items()
        for warning in page.warnings
    ]
    return Page(f"{title} by {dimension}", headline, sections, warnings)
