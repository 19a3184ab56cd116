"""Sections of words, facts, charts and tables -> one self-contained HTML page.

The page needs nothing from anywhere else and no script. Everything but our own SVG is escaped by
the template engine; strings that clients may have sent come through `visible` besides, so that no
control or invisible character reaches the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO

import jinja2

from hubbub.decoder.html.charts import Chart
from hubbub.decoder.output.provenance import Provenance


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column names the row.

    Attributes
    ----------
    title : str
    header : tuple of str
    rows : tuple of tuple of str
    left_out : str
        How many rows aren't shown; empty if none.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report below one heading; whatever is empty is left out.

    Attributes
    ----------
    title : str
    paragraphs : tuple of str
    facts : tuple of (str, str)
        Label and text.
    charts : tuple of Chart
    tables : tuple of Table
    """

    title: str
    paragraphs: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


def write_page(
    file: BinaryIO,
    title: str,
    headline: str,
    sections: Sequence[Section],
    *,
    warnings: Sequence[str] = (),
) -> None:
    """Write a page.

    Parameters
    ----------
    file : binary file
    title : str
    headline : str
        What was found, in a sentence or two.
    sections : sequence of Section
    warnings : sequence of str
        What must not be overlooked.
    """
    page = _environment().get_template("page.html")
    parts = page.generate(title=title, headline=headline, sections=sections, warnings=warnings)
    file.writelines(part.encode("utf-8") for part in parts)


def privacy_section(epsilon_report: float, epsilon_permanent: float) -> Section:
    """Return both epsilons, and what they mean."""
    of_one = (
        f"No single report is more than {_ratio(epsilon_report)} as likely from a person with one "
        "value as from a person with another one."
    )
    of_all = (
        "All reports that a person ever makes of one value, even linked to each other, are "
        f"together at most {_ratio(epsilon_permanent)} as likely under one value as under another. "
        "Values that change, and other metrics, cost this anew."
    )
    return Section(
        "Privacy",
        (of_one, of_all),
        (
            ("epsilon of one report", f"{epsilon_report:.4g}"),
            ("epsilon for life (one value)", f"{epsilon_permanent:.4g}"),
        ),
    )


def _ratio(epsilon: float) -> str:
    """Return e^epsilon in words."""
    if epsilon > 700:
        return "unboundedly many times"
    times = 2.718281828459045**epsilon
    return f"{times:,.2f} times" if times < 100 else f"{times:,.0f} times"


def provenance_section(provenance: Provenance | None) -> Section:
    """Return where the result comes from."""
    title = "Where this comes from"
    if provenance is None:
        return Section(title, ("Not recorded.",))
    version = provenance.metric_version
    facts = [
        ("metric", provenance.metric + (f", version {version}" if version is not None else "")),
        ("days decoded", provenance.days),
        *((name.replace("_", " "), text) for name, text in provenance.settings.items()),
        ("parameters", ", ".join(f"{k} = {v:g}" for k, v in provenance.parameters.items())),
        ("SHA-256 of the parameters", provenance.parameters_sha256),
        ("seed", provenance.seed),
        ("versions", ", ".join(f"{name} {text}" for name, text in provenance.versions.items())),
    ]
    sources = tuple((s.role, s.name, s.sha256) for s in provenance.sources)
    tables = (Table("Inputs", ("input", "name", "SHA-256"), sources),)
    return Section(
        title,
        ("The same inputs, settings and versions give this page again, to the byte.",),
        tuple(facts),
        tables=tables,
    )


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("hubbub.decoder.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
