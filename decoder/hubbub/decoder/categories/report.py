"""A category decoding -> one HTML report, by the same parts as that of strings."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from hubbub.decoder.categories.decoding import CategoryDecoding
from hubbub.decoder.categories.ordinal import bucket_label
from hubbub.decoder.categories.summary import summary_lines
from hubbub.decoder.html.charts import Chart, Interval, Labels, interval_chart
from hubbub.decoder.html.page import (
    Section,
    Table,
    privacy_section,
    provenance_section,
    write_page,
)
from hubbub.decoder.inference.intervals import CONFIDENCE
from hubbub.decoder.output.provenance import Provenance
from hubbub.decoder.output.strings import visible
from hubbub.decoder.output.summary import SUSPICIOUS
from hubbub.decoder.reports.scrutiny import Findings

_MOST = 100


def write_category_report(
    file: BinaryIO,
    decoding: CategoryDecoding,
    *,
    findings: Findings | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write a category decoding as one self-contained page (see `report.write_report`)."""
    name = f" of {visible(provenance.metric)}" if provenance else ""
    lines = summary_lines(decoding, findings)
    warnings = [f"{label}: {text}" for label, text in lines.items() if SUSPICIOUS in text]
    summary = decoding.summary
    sections = [
        _shares(decoding),
        *_quantiles(decoding),
        Section("Summary", facts=tuple(lines.items())),
        privacy_section(summary.epsilon_report, summary.epsilon_permanent),
        provenance_section(provenance),
    ]
    write_page(file, f"What the reports{name} say", headline(decoding), sections, warnings=warnings)


def headline(decoding: CategoryDecoding) -> str:
    """Return what was found, in a sentence."""
    summary = decoding.summary
    largest = int(np.argmax(decoding.estimates.share))
    return (
        f"Of {summary.reports:,} reports an estimated {decoding.estimates.share[largest]:.1%} are "
        f"“{visible(decoding.categories[largest])}”, the largest of {summary.categories:,} "
        f"categories; {summary.detected:,} were detected."
    )


def _shares(decoding: CategoryDecoding) -> Section:
    rows = tuple(
        (
            visible(name),
            f"{decoding.estimates.share[i] * decoding.summary.reports:,.0f}",
            f"{decoding.estimates.share[i]:.3%}",
            f"{decoding.interval.low[i]:.3%} … {decoding.interval.high[i]:.3%}",
            f"{decoding.q_value[i]:.1e}",
            "yes" if decoding.detected[i] else "",
        )
        for i, name in enumerate(decoding.categories)
    )
    header = ("category", "count", "share", f"{CONFIDENCE:.0%} interval", "q", "detected")
    return Section(
        "What was found", charts=(_chart(decoding),), tables=(Table("Categories", header, rows),)
    )


def _chart(decoding: CategoryDecoding) -> Chart:
    chosen = np.arange(len(decoding.categories))
    if len(chosen) > _MOST:
        order = np.argsort(-decoding.estimates.share, kind="stable")
        chosen = np.sort(order[:_MOST])
    intervals = [
        Interval(
            visible(decoding.categories[i]),
            100 * float(decoding.estimates.share[i]),
            100 * float(decoding.interval.low[i]),
            100 * float(decoding.interval.high[i]),
        )
        for i in map(int, chosen)
    ]
    described = (
        f"{len(chosen)} of {len(decoding.categories):,} categories with "
        f"{CONFIDENCE:.0%} intervals, in the registry's order."
    )
    labels = Labels("estimates", "Estimated shares", described, "share of the population")
    return interval_chart(labels, intervals)


def _quantiles(decoding: CategoryDecoding) -> list[Section]:
    if decoding.ordinal is None:
        return []
    rows = tuple(
        (f"{q.level:.0%}", bucket_label(q.bucket_low, q.bucket_high), bucket_label(q.low, q.high))
        for q in decoding.ordinal.quantiles
    )
    header = ("share below", "bucket", f"{CONFIDENCE:.0%} interval")
    return [Section("Quantiles", tables=(Table("Quantiles", header, rows),))]
