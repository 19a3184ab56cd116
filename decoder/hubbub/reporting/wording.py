"""Shared by all estimates: findings about honesty and privacy, and provenance.

Two results with equal provenance are equal. It therefore holds nothing of the run itself: no time
of day, no machine, no folder (files are named by their last part). Strings that clients may have
sent are shown as `hubbub.reporting.text` makes them visible.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from hubbub.inference import (
    CONFIDENCE,
    AnomalyReport,
    Correction,
    Estimand,
    FloatArray,
    IntArray,
    Misfit,
    RepeatedReports,
    RepeatSource,
)
from hubbub.inference.decoding import POWER
from hubbub.protocol import CohortCounts, counted
from hubbub.reporting.charts import IntervalChart, Labels
from hubbub.reporting.estimates import (
    Block,
    Column,
    Estimates,
    Heading,
    Line,
    Page,
    Section,
    Table,
    Values,
    as_facts,
    table_of,
    warnings_in,
)
from hubbub.reporting.findings import Finding, Level
from hubbub.reporting.text import visible
from hubbub.storage import resolve, storage_errors

SEED = "none: decoding is deterministic"
_PACKAGES = ("hubbub", "numpy", "scipy")
_OF_PAGES = {"title", "about"}
BOOLEAN = ("false", "true")
"""Two categories that people are shown as one row, the share of true: the other is its mirror."""


@dataclass(frozen=True, slots=True)
class Source:
    """One input."""

    role: str  # such as "candidates"
    name: str  # of the file, without its folder
    sha256: str  # hexadecimal


@cache
def _versions() -> dict[str, str]:
    from importlib.metadata import version  # noqa: PLC0415 - takes long to import

    return {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """All that determines a result."""

    # Versions of the packages that compute, and Python's.
    versions: Mapping[str, str] = field(default_factory=_versions)
    metric: str  # its name, or the name of the file of parameters
    metric_version: int | None  # none for counts
    parameters: Mapping[str, float]  # k, h, m, f, p and q
    parameters_sha256: str  # by `parameters_digest`
    settings: Mapping[str, str]  # level, correction, method and what else was chosen
    days: str  # the UTC days that were decoded
    sources: tuple[Source, ...]
    seed: str = SEED
    # For pages alone: the metric and the slice of its reports; what it asks, and the days.
    title: str = ""
    about: str = ""

    def made_by(self, method: str) -> Provenance:
        """Return the provenance of what a method, in words, made."""
        return replace(self, settings={**self.settings, "method": method})

    def as_json(self) -> dict[str, object]:
        """Return all of it as JSON can hold it, without what only pages show."""
        return {name: each for name, each in asdict(self).items() if name not in _OF_PAGES}


def parameters_digest(parameters: Mapping[str, float]) -> str:
    """Return the hexadecimal SHA-256 of parameters, however their numbers are written."""
    numbers = {name: float(value) for name, value in parameters.items()}
    text = json.dumps(numbers, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_source(role: str, path: str) -> Source:
    """Return a file as a source."""
    location = resolve(path)
    with storage_errors(location), location.open() as file:
        return Source(role, location.name, hashlib.file_digest(file, "sha256").hexdigest())


def strings_source(role: str, strings: Iterable[str], name: str = "a pipe") -> Source:
    """Return strings that are no file as a source: one per line, each once, in UTF-8."""
    hashing = hashlib.sha256()
    for string in strings:
        hashing.update(string.encode("utf-8") + b"\n")
    return Source(role, name, hashing.hexdigest())


def counts_source(role: str, counts: CohortCounts) -> Source:
    """Return counts as a source: N_c and the bit counts of each cohort, as little-endian int64.

    Segments of a store are shuffled and merged as it ages, so their bytes are no one's digest; the
    counts that are made of them stay.
    """
    hashing = hashlib.sha256(counts.reports.astype("<i8").tobytes())
    hashing.update(counts.bits.astype("<i8").tobytes())
    return Source(role, "reports of each cohort, then of each bit", hashing.hexdigest())


ERROR_RATES = {
    Correction.BH: "false discovery rate",
    Correction.BONFERRONI: "chance of any false detection",
}
UNCERTAIN = "present, frequency uncertain"
"""Said of what is detected though its interval reaches 0."""
INTERVAL = f"{CONFIDENCE:.0%} interval"
SHARE_COLUMNS = (
    *("count", "std_error", "count_low", "count_high"),
    *("proportion", "prop_std_error", "prop_low", "prop_high"),
)
"""Columns of every decoding: an estimate, its error and its interval, as a count and as a share."""


def title_of(provenance: Provenance | None) -> str:
    """Return a page's title: the metric, and the slice of its reports."""
    return visible((provenance.title or provenance.metric) if provenance else "Reports")


def decoded_estimates(
    headline: str,
    sections: Iterable[Section],
    provenance: Provenance | None,
    *,
    columns: Mapping[str, Column],
    keys: tuple[str, ...],
    findings: tuple[Finding, ...],
    view: Sequence[Block],
    summary: Any = None,
    anomalies: AnomalyReport | None = None,
    metadata: Mapping[str, object] | None = None,
    more: Sequence[Section] = (),
    title: str = "",
) -> Estimates:
    """Return estimates with the page and the text that all decodings have.

    `sections`: what was found; the `summary`'s privacy, `more`, the findings and where they come
    from follow. `view`: what a terminal shows before the findings. `metadata`: that of this kind;
    all that have a summary also have "summary" and "anomalies" (null where there are none).
    `title`: of the page, if it isn't the metric's.
    """
    facts, blocks = as_facts(findings), list[Block]()
    for block in view:
        if isinstance(block, Table) and blocks:
            blocks.append(Line(""))
        blocks.append(block)
    common: dict[str, object] = {}
    if summary is not None:
        sections = (*sections, _privacy_section(summary.epsilon_report, summary.epsilon_permanent))
        common = {"summary": asdict(summary), "anomalies": anomalies and anomalies.as_json()}
    page = Page(
        title or title_of(provenance),
        headline,
        (
            *sections,
            *more,
            Section("Summary", facts=facts, folded=True),
            _provenance_section(provenance),
        ),
        warnings_in(findings),
        about=provenance.about if provenance else "",
    )
    return Estimates(
        columns=columns,
        keys=keys,
        findings=findings,
        metadata={
            **common,
            **(metadata or {}),
            "provenance": provenance and provenance.as_json(),
        },
        view=(*blocks, Line(""), facts),
        page=page,
        charts=page.picture,
    )


def share_table(
    title: str,
    heads: Sequence[str],
    names: Sequence[tuple[str, ...]],
    numbers: Mapping[str, Values],
    detected: Sequence[str],
    more: Sequence[tuple[str, str]] = (),
    n_rows: int | None = None,
) -> Table:
    """Return rows of `SHARE_COLUMNS` for people: counts, shares, intervals, whether detected.

    `more`: a heading and a format each, as of `table_of`.
    """
    return table_of(
        title,
        names,
        numbers,
        (
            ("share", "{proportion:.2%}"),
            (INTERVAL, "{prop_low:.2%} … {prop_high:.2%}"),
            ("reports", "{count:,.0f}"),
            *more,
        ),
        heads=heads,
        last=(Heading("detected", "left"), detected),
        n_rows=n_rows,
    )


def share_chart(
    name: str,
    title: str,
    axis: str,
    names: Sequence[str],
    shares: Sequence[FloatArray],
    n_rows: int,
    first: str = "string",
) -> IntervalChart:
    """Draw shares with their intervals: arrays of estimates and both ends, by name.

    `n_rows`: how many there are in all; these are the largest.
    """
    largest = f" The {len(names):,} largest of {n_rows:,}." if len(names) < n_rows else ""
    labels = Labels(name, title, f"Bars are {INTERVAL}s.{largest}", axis)
    share, low, high = (100 * each for each in shares)
    return IntervalChart(labels, names, share, low, high, first=first)


def days_text(first: dt.date, last: dt.date) -> str:
    """Return days in words: "1 to 28 November 2026"."""
    if first == last:
        return f"{last:%-d %B %Y}"
    start = f"{first:%-d}"
    if first.month != last.month or first.year != last.year:
        start += f" {first:%B}"
    if first.year != last.year:
        start += f" {first:%Y}"
    return f"{start} to {last:%-d %B %Y}"


def shown_rows(names: Sequence[str]) -> IntArray:
    """Return the rows that people are shown: of a boolean that of true alone."""
    rows = np.arange(len(names))
    return rows[1:] if tuple(names) == BOOLEAN else rows


def percent(share: float) -> str:
    """Return a share for a sentence: two or three digits, and never below 0% or above 100%."""
    share = min(max(share, 0.0), 1.0)
    digits = 1 if share >= 0.01 or share == 0 else 2 if share >= 0.001 else 3
    return f"{share:.{digits}%}"


def chance_text(p_value: float) -> str:
    """Return in words how often chance alone would show as much."""
    if p_value < 1e-6:
        return "less than 1 in a million"
    return f"{p_value:.2g}" if p_value > 0.1 else f"about 1 in {float(f'{1 / p_value:.2g}'):,.0f}"


def share_columns(n_reports: int | IntArray, shares: Sequence[FloatArray]) -> dict[str, FloatArray]:
    """Return `SHARE_COLUMNS` of shares, their errors and both ends of their intervals."""
    counts = (n_reports * each for each in shares)
    return dict(zip(SHARE_COLUMNS, (*counts, *shares), strict=True))


def certainty(low: float, n_reports: int) -> str:
    """Return the sentence on an interval's lower end, a share, of what is detected."""
    return "yes" if low * n_reports >= 0.5 else UNCERTAIN


def epsilon_findings(epsilon_report: float, epsilon_permanent: float) -> tuple[Finding, ...]:
    """Return both epsilons, or one where an answer's only report has no permanent response."""
    epsilons = {
        ("epsilon_report", "epsilon of one report"): epsilon_report,
        ("epsilon_permanent", "epsilon of one answer"): epsilon_permanent,
    }
    return tuple(
        Finding(*names, f"{epsilon:.4g}", epsilon)
        for names, epsilon in epsilons.items()
        if epsilon < math.inf
    )


def estimand_finding(repeats: RepeatedReports) -> Finding:
    """Return what errors and intervals are about."""
    text = {
        Estimand.POPULATION: "the population that these reports were drawn from",
        Estimand.REPORTS: "these reports alone",
    }[repeats.estimand]
    return Finding("estimand", "intervals are about", text, repeats.estimand.value)


def repeats_findings(repeats: RepeatedReports) -> tuple[Finding, ...]:
    """Return what intervals are about, and how often clients have reported, where that varies."""
    number = f"{repeats.clients:.4g}"
    texts = {
        RepeatSource.ONE_DAY: f"{number}: all are of one day",
        RepeatSource.DAYS: f"an average report's client sent at most {number}, one per day",
        RepeatSource.GIVEN: (
            f"an average report's client sent {number}, as --reports-per-client says"
        ),
        RepeatSource.UNKNOWN: (
            f"assumed to be {number}: these reports have no days; set --reports-per-client"
        ),
    }
    about = estimand_finding(repeats)
    if repeats.source not in texts:
        return (about,)
    text = texts[repeats.source]
    if repeats.responses == 1 < repeats.clients:
        text += "; each with noise of its own"
    elif repeats.responses < repeats.clients:
        text += f"; {repeats.responses:.4g} of one permanent response"
    if repeats.assumes_daily:
        text += (
            "; this assumes that no client reports twice a day, which reports_per_day = 1 ensures"
        )
    return about, Finding("reports_per_client", "reports of a client", text, repeats.clients)


def detected_finding(detected: int, correction: Correction, alpha: float) -> Finding:
    """Return how many were detected, and by which error rate."""
    text = f"{detected:,} at a {ERROR_RATES[correction]} of at most {alpha:g}"
    return Finding("detected", "detected", text, detected)


def limit_line(share: float) -> str:
    """Return which share is found: any number from 0, inf or nan."""
    if math.isnan(share):
        return "not known: no candidate can be distinguished from all others"
    if math.isinf(share):
        return "none: with so few cohorts and hashes, no share can be detected at this level"
    if share >= 1:
        return f"none: with so few reports, no share at all is found with probability {POWER:g}"
    return f"a share of {share:.3%} is found with probability {POWER:g}"


def anomaly_findings(anomalies: AnomalyReport | None) -> tuple[Finding, ...]:
    """Return what was found by each check of single reports; nothing where there were none."""
    if anomalies is None:
        return ()
    return _set_bits(anomalies), _repeats(anomalies), _balance(anomalies)


def misfit_findings(found: Misfit | None) -> tuple[Finding, ...]:
    """Return a warning of counts that the parameters make next to impossible."""
    if found is None:
        return ()
    if found.bit is None:
        where = "" if found.cohort is None else f" in cohort {found.cohort}"
        seen = f"a report has {found.rate:.2f} set bits on average{where}"
        range_ = f"{found.low:.2f} to {found.high:.2f}"
    else:
        seen = f"bit {found.bit} of cohort {found.cohort} is set in {found.rate:.1%} of the reports"
        range_ = f"{found.low:.1%} to {found.high:.1%}"
    text = (
        f"{seen}, where these parameters allow {range_}; check p, q and f (are two exchanged?), k "
        "and h, that each cohort has its own counts, and that the reports are this metric's and "
        "honest"
    )
    return (Finding("misfit", "parameters don't fit", text, asdict(found), Level.WARNING),)


def overlooked_finding(share: float) -> Finding:
    """Return a warning of a common string that isn't among the detected."""
    text = (
        f"some string has a share of at least {share:.1%}, more than all detected ones together: "
        "it isn't listed, or the candidates' bits aren't those that clients set; check the list, "
        "the map or the hash, the order of bits and cohorts, and that the reports are this metric's"
    )
    return Finding("overlooked", "candidates don't fit", text, share, Level.WARNING)


def _set_bits(anomalies: AnomalyReport) -> Finding:
    low, high = anomalies.plausible[:2]
    numbers = f"{low:,} to {high:,}" if low < high else f"{low:,}"
    value: int | None = anomalies.improbable
    level, end = Level.FACT, "consistent with honest clients" if low < high else "as they should"
    text = f"all reports have {numbers}, {end}"
    if anomalies.improbable:
        level = Level.ALARM
        text = (
            f"{counted(anomalies.improbable, 'report')} without {numbers} set bits; honest clients "
            "would send none"
        )
    elif not anomalies.set_bits_assessed:
        text = "can't be checked: with so few bits, honest reports may set any number of them"
        value = None
    return Finding("set_bits", "set bits", text, value, level)


def _repeats(anomalies: AnomalyReport) -> Finding:
    repeats, level = anomalies.repeats, Level.FACT
    looked_at = f"of {repeats.sampled:,} reports checked"
    if anomalies.counted:
        only_counts = f"only counts are kept of {anomalies.counted:,} reports"
        looked_at = f"{only_counts}; {looked_at}"
    value: int | None = repeats.suspicious
    if not repeats.assessed:
        value = None
        text = "can't be checked: with so few bits or so little noise, honest reports repeat too"
    elif anomalies.counted and not repeats.sampled:
        text, value = f"can't be checked: {only_counts}", None
    elif repeats.suspicious:
        level = Level.ALARM
        text = (
            f"{repeats.suspicious:,} {looked_at} are exact copies of others: one occurs "
            f"{repeats.most:,} times, where at most {repeats.plausible:,} are plausible"
        )
    else:
        text = f"{looked_at} none repeats suspiciously often"
    return Finding("repeated_reports", "repeated reports", text, value, level)


def _balance(anomalies: AnomalyReport) -> Finding:
    balance, level = anomalies.balance, Level.FACT
    value: float | None = balance.ratio
    text = f"cohort {balance.cohort} has {balance.ratio:.2f} times the mean"
    if not anomalies.cohorts_assessed:
        text, value = "can't be checked: there is only one", None
    elif anomalies.cohorts_suspicious:
        level = Level.ALARM
        text += (
            f"; honest only if some client sent more than {balance.clients_must_send:,.0f} reports"
        )
    else:
        text += ", consistent with honest clients"
    return Finding("cohort_sizes", "cohort sizes", text, value, level)


def forgery_finding(forged_share: float, forgery_shift: float) -> Finding:
    """Return how far forged reports could move an estimate."""
    text = (
        f"if {forged_share:.0%} of these reports were forged, an estimated share could "
        f"move by at most {100 * forgery_shift:.1f} percentage points"
    )
    return Finding("if_forged", "if forged", text, forgery_shift)


def _privacy_section(epsilon_report: float, epsilon_permanent: float) -> Section:
    """Return both epsilons, and what they mean."""
    of_one = (
        f"No single report is more than {_ratio(epsilon_report)} as likely from a person with one "
        "value as from a person with another one."
    )
    of_all = (
        "All reports that a person ever makes of one answer (a value; or a period, if the metric "
        "has periods), even linked to each other, are together at most "
        f"{_ratio(epsilon_permanent)} as likely under one value as under another. Other answers, "
        "and other metrics, cost this again."
    )
    if math.isinf(epsilon_permanent):
        of_all = (
            "Each answer is reported once. Answers of other periods, and other metrics, cost this "
            "again."
        )
    return Section(
        "Privacy", (of_one, of_all), as_facts(epsilon_findings(epsilon_report, epsilon_permanent))
    )


def _ratio(epsilon: float) -> str:
    if epsilon > 700:
        return "unboundedly many times"
    times = math.e**epsilon
    return f"{times:,.2f} times" if times < 100 else f"{times:,.0f} times"


def _provenance_section(provenance: Provenance | None) -> Section:
    """Return where the result comes from."""
    title = "Where this comes from"
    if provenance is None:
        return Section(title, ("Not recorded.",), folded=True)
    version = provenance.metric_version
    facts = {
        "metric": provenance.metric + (f", version {version}" if version is not None else ""),
        "days decoded": provenance.days,
        **{name.replace("_", " "): text for name, text in provenance.settings.items()},
        "parameters": ", ".join(f"{k} = {v:g}" for k, v in provenance.parameters.items()),
        "SHA-256 of the parameters": provenance.parameters_sha256,
        "seed": provenance.seed,
        "versions": ", ".join(f"{name} {text}" for name, text in provenance.versions.items()),
    }
    sources = tuple((s.role, s.name, s.sha256) for s in provenance.sources)
    heads = tuple(Heading(each, "left") for each in ("input", "name", "SHA-256"))
    tables = (Table("Inputs", heads, sources),)
    return Section(
        title,
        ("The same inputs, settings and versions give this page again, to the byte.",),
        facts,
        tables=tables,
        folded=True,
    )
