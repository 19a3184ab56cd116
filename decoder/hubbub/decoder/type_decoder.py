"""Decode reports by metric type: one class per type, found by the type's name.

`hubbub.protocol.metric_types` turns values into bits; a `TypeDecoder` turns reports into
estimates, and states what is special about the type's privacy. Names of `inference` and `reporting`
are looked up when a type needs them, so that nobody waits for another type's mathematics.
Invariant: nothing else in the decoder asks which type a metric has.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np

from hubbub import inference, reporting
from hubbub.decoder.candidates import (
    CandidateLists,
    field_lists,
    hashed_lists,
    list_candidates,
    plain_list,
)
from hubbub.decoder.options import BY_DAY, DecodeOptions
from hubbub.inference import Correction, Estimand, RepeatedReports
from hubbub.protocol import (
    JointType,
    Metric,
    OpenStringType,
    Option,
    OptionError,
    RapporParams,
    StringType,
)

if TYPE_CHECKING:
    from hubbub.decoder.reports import CountedReports
    from hubbub.inference import (
        AnomalyReport,
        Candidates,
        CategoryDecoding,
        Choice,
        Comparison,
        Decoding,
        FieldLabels,
        Groups,
        JointDecoding,
        Misfit,
        NumberDecoding,
        Ratios,
        Trends,
    )
    from hubbub.protocol import CohortCounts
    from hubbub.reporting import Estimates, Finding, Provenance


@dataclass(frozen=True, slots=True)
class DecodeInput:
    """The input of an estimate."""

    metric: Metric
    reports: CountedReports
    candidates: CandidateLists  # as the type's `read_candidates` returned them
    options: DecodeOptions
    choice: Choice | None = None  # the type's, which decided whether reports were kept whole
    # Where all of it comes from, except for the method; None if no output states it.
    provenance: Provenance | None = None

    @property
    def correction(self) -> Correction:
        """The error rate that is controlled."""
        return Correction(self.options.correction)

    @property
    def level(self) -> dict[str, Any]:
        """The error rate of detections, and how often clients have reported, as arguments."""
        how = self.options
        return {"alpha": how.alpha, "correction": self.correction, "repeats": self.repeats}

    @property
    def level_of_differences(self) -> dict[str, Any]:
        """The error rate of differences, and whether one may look every day, as arguments."""
        how = self.options
        return {"alpha": how.alpha, "correction": self.correction, "sequential": how.sequential}

    @property
    def repeats(self) -> RepeatedReports:
        """How often the reports' clients have reported, and whose shares are asked for."""
        how = self.options
        least = how.min_reports if how.by == BY_DAY else 0
        decoded = {day: n for day, n in self.reports.day_sizes.items() if n >= least}
        estimand = Estimand(how.estimand)
        return inference.repeats_of(self.metric, decoded, how.reports_per_client, estimand)

    @property
    def misfit(self) -> Misfit | None:
        """Counts that the metric's parameters make next to impossible, if any."""
        metric = self.metric
        if metric.type.width is not None:  # `known_rates` checks these
            return None
        true_bits = metric.type.true_bits(metric.params)
        return inference.misfit(self.reports.counts, metric.params, true_bits, self.repeats)

    def made_by(self, method: str) -> Provenance | None:
        """Return the provenance of an estimate that was made in a way, in words."""
        return self.provenance and self.provenance.made_by(method)

    @property
    def shown(self) -> tuple[AnomalyReport | None, bool, int]:
        """Anomalies, whether only detected rows are kept, and how many are shown."""
        return self.reports.anomalies, self.options.detected_only, self.options.rows


class Observer:
    """Follows a decoding; by itself it warns of notes, and shows nothing else."""

    def note(self, text: str) -> None:
        """Pass on something that must not be overlooked."""
        warnings.warn(text, stacklevel=2)

    def counting(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Return a context for counting reports; yields update(done, total)."""
        return nullcontext(lambda _done, _total: None)

    def searching(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Return a context for finding open strings; yields update(done, steps)."""
        return nullcontext(lambda _done, _total: None)

    def likelihood_progress(self) -> AbstractContextManager[Callable[[int, float], None]]:
        """Return a context for maximising the likelihood; yields update(passes, gap)."""
        return nullcontext(lambda _passes, _gap: None)


class TypeDecoder(ABC):
    """The decoder's side of a metric type."""

    theorem: ClassVar[str] = "Erlingsson, Pihur, Korolova 2014, theorem {}"

    finds_strings: ClassVar[bool] = False
    """Whether it finds strings by itself, so that --extend makes sense."""

    follows_days: ClassVar[bool] = True
    """Whether each day can be estimated by itself, so that --by day makes sense."""

    def check(self, metric: Metric, options: DecodeOptions) -> None:  # noqa: B027 - may be empty
        """Raise OptionError for options that make no sense for the type."""

    def read_candidates(self, metric: Metric, options: DecodeOptions) -> CandidateLists:  # noqa: ARG002
        """Read the strings to look for, in the form that `estimate` takes; by default none.

        Raises `OptionError` if none are given, or more than one list; `CandidateError, InputError`
        if they can't be read.
        """
        return CandidateLists()

    def choice(
        self,
        metric: Metric,  # noqa: ARG002
        candidates: CandidateLists,  # noqa: ARG002
        options: DecodeOptions,  # noqa: ARG002
    ) -> Choice | None:
        """Return the choice that decides whether reports are kept whole; by default none are."""
        return None

    @abstractmethod
    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:
        """Turn counted reports into estimates; raises `UndecodableError` if they can't answer."""

    def compare(self, data: DecodeInput, groups: Groups, observer: Observer) -> Comparison[Any]:  # noqa: ARG002
        """Compare two groups' reports, of which `data` has both together; by default refused.

        Raises `OptionError` if groups of this type aren't compared, `UndecodableError` if the
        reports can't answer.
        """
        metric = data.metric
        raise OptionError(
            Option("metric", metric.name),
            f": is of type {metric.type.name!r}; groups are compared of types string, enum, "
            "boolean, ordinal and number.",
        )

    def report_ratios(self, params: RapporParams, reports: int = 1) -> tuple[Ratios, ...]:
        """Return the likelihood ratios of the worst pair of values, in each direction that differs.

        From them follows how much shuffled reports hide (`hubbub.planning.amplification`). By
        default two values set h bits each, none in common; it is asked where bits have noise of
        their own. The `reports` that a client makes of its permanent response count as one.
        """
        return (inference.filter_ratios(params, reports),)


class StringDecoder(TypeDecoder):
    """Any text, by regression on bit counts or the likelihood of whole reports; also day by day."""

    def read_candidates(self, metric: Metric, options: DecodeOptions) -> CandidateLists:
        """Read the list."""
        return hashed_lists(options, metric)

    def choice(
        self, metric: Metric, candidates: CandidateLists, options: DecodeOptions
    ) -> Choice | None:
        """Return the choice between bit counts and whole reports."""
        method = inference.Method(options.method)
        return inference.Choice(method, metric.params, len(candidates.strings))

    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:
        """Estimate how often each candidate occurs, perhaps day by day."""
        options, reports = data.options, data.reports
        if not options.by:
            found, _ = _decode_strings(data, reports.counts, observer)
            provenance = data.made_by(found.summary.method)
            anomalies, detected_only, rows = data.shown
            estimates = reporting.strings_estimates(
                found, anomalies, provenance, detected_only, rows
            )
            return estimates.warned(_overlooked(data, found))
        # The strings that are detected in all days together are followed from day to day.
        least = options.min_reports
        enough = inference.days_with_enough(reports.by_day, least)
        pooled, listed = _decode_strings(data, reduce(add, enough.values()), observer)
        trends, way = None, "likelihood"
        if pooled.summary.method == inference.LIKELIHOOD:
            trends = inference.decode_whole_days(
                reports.by_day, reports.whole_by_day, pooled, listed, min_reports=least
            )
        if trends is None:
            trends = inference.follow(reports.by_day, pooled, listed, min_reports=least)
            way = "least squares"
        estimates = _days_estimates(data, trends, reporting.string_findings, way)
        return estimates.warned(_overlooked(data, pooled))

    def compare(
        self, data: DecodeInput, groups: Groups, observer: Observer
    ) -> Comparison[Decoding]:
        """Detect strings in both groups together, and compare their shares by bit counts."""
        pooled, listed = _decode_strings(data, groups.together, observer)
        return inference.compare_strings(groups, pooled, listed, **data.level_of_differences)


def _decode_strings(
    data: DecodeInput, counts: CohortCounts, observer: Observer
) -> tuple[Decoding, Candidates]:
    """Decode counts, and whole reports if they were kept; also return the candidates."""
    listed, params = data.candidates.hashed, data.metric.params
    if listed is None or data.choice is None:
        raise TypeError("a metric of strings needs hashed candidates")
    counted = inference.decode(counts, params, listed, **data.level)
    with observer.likelihood_progress() as passed:
        return data.choice.complete(counted, data.reports.whole, listed, passed), listed


def _overlooked(data: DecodeInput, decoding: Decoding) -> tuple[Finding, ...]:
    share = inference.overlooked(data.reports.counts, data.metric.params, data.repeats)
    if share > decoding.summary.detection_limit and share > np.nansum(decoding.constrained_share):
        return (reporting.overlooked_finding(share),)
    return ()


class OpenStringDecoder(TypeDecoder):
    """Unlisted strings: a search from short prefixes to whole strings, and a test of these."""

    finds_strings = True
    follows_days = False

    def check(self, metric: Metric, options: DecodeOptions) -> None:
        """Refuse maps, whole reports and days."""
        what = f"metrics.{metric.name}.type = {metric.type.name!r}"
        for name in options.given("map"):
            raise OptionError(name, f": must be left out; {what} has positions at several steps.")
        _refuse_beyond_counts(options, what)

    def read_candidates(self, metric: Metric, options: DecodeOptions) -> CandidateLists:
        """Read the strings that are tested in any case, and those to learn from, if any."""
        lists, corpus = plain_list(options, metric), options.corpus
        if corpus is None:
            return lists
        learned, _ = list_candidates(corpus, None, metric.params)
        return replace(lists, corpus=tuple(learned.strings))

    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:
        """Find the strings, and estimate how often each occurs."""
        options = data.options
        with observer.searching() as update:
            found = inference.decode_open_strings(
                data.reports.counts,
                data.metric.params,
                cast("OpenStringType", data.metric.type),
                candidates=tuple(data.candidates.strings),
                below=options.extend,
                corpus=data.candidates.corpus,
                alphabet=options.alphabet,
                progress=update,
                **data.level,
            )
        anomalies, detected_only, rows = data.shown
        provenance = data.made_by("prefixes step by step, then least squares")
        return reporting.open_estimates(found, anomalies, provenance, detected_only, rows)


class CategoryDecoder(TypeDecoder):
    """A type with one bit for each value that the registry lists, or one bit for two."""

    def check(self, metric: Metric, options: DecodeOptions) -> None:
        """Refuse strings to look for, and their method."""
        reason = "; its bit counts say all that whole reports do"
        _refuse_lists_and_reports(metric, options, " says which values there are", reason)

    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:  # noqa: ARG002
        """Invert the bit counts, perhaps day by day."""
        if data.options.by:
            trends = inference.decode_category_days(
                data.reports.by_day,
                data.metric,
                min_reports=data.options.min_reports,
                **data.level,
            )
            return _days_estimates(data, trends, reporting.category_findings, "inversion")
        found = inference.decode_categories(data.reports.counts, data.metric, **data.level)
        anomalies, detected_only, rows = data.shown
        provenance = data.made_by("inversion")
        return reporting.categories_estimates(found, anomalies, provenance, detected_only, rows)

    def compare(
        self,
        data: DecodeInput,
        groups: Groups,
        observer: Observer,  # noqa: ARG002
    ) -> Comparison[CategoryDecoding]:
        """Compare the shares of all categories."""
        return inference.compare_categories(groups, data.metric, **data.level_of_differences)


class BooleanDecoder(CategoryDecoder):
    """The two values differ in one bit, where those of other types differ in two or more."""

    theorem = (
        "the exact law of one randomized bit (Warner 1965), as RAPPOR's theorem {} for one bit"
    )

    def report_ratios(self, params: RapporParams, reports: int = 1) -> tuple[Ratios, ...]:
        """Return the ratios of true against false, and of false against true."""
        ratios = inference.bit_ratios(params, reports)
        return ratios, ratios.swapped()


class NumberDecoder(TypeDecoder):
    """Weights of cells, whose mean is that of the numbers."""

    theorem = "the piecewise mechanism on a grid (Wang et al. 2019), as RAPPOR's theorem {}"

    def check(self, metric: Metric, options: DecodeOptions) -> None:
        """Refuse strings to look for, and their method: there is nothing to detect."""
        reason = " is decoded from the counts of its cells"
        _refuse_lists_and_reports(metric, options, ", whose reports hold no names", reason)

    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:  # noqa: ARG002
        """Weigh the cells' counts, perhaps day by day."""
        reports = data.reports
        if data.options.by:
            trends = inference.decode_number_days(
                reports.by_day, data.metric, min_reports=data.options.min_reports, **data.level
            )
            return _days_estimates(data, trends, reporting.number_findings, "weights of cells")
        found = inference.decode_numbers(reports.counts, data.metric, **data.level)
        provenance = data.made_by("weights of cells")
        return reporting.numbers_estimates(found, reports.anomalies, provenance)

    def compare(
        self,
        data: DecodeInput,
        groups: Groups,
        observer: Observer,  # noqa: ARG002
    ) -> Comparison[NumberDecoding]:
        """Compare the means, and perhaps the variances."""
        return inference.compare_numbers(groups, data.metric, **data.level_of_differences)


class JointDecoder(TypeDecoder):
    """Cells, and from them margins, conditional shares and departures from independence."""

    follows_days = False

    def check(self, metric: Metric, options: DecodeOptions) -> None:
        """Refuse maps, whole reports, days, and candidates where all values are listed."""
        what = f"metrics.{metric.name}.type = 'joint'"
        listed = not _string_fields(metric)
        for name in options.given(*(["map", "candidates"] if listed else ["map"])):
            text = f": must be left out; {what}, and its fields say which values there are."
            raise OptionError(name, text)
        _refuse_beyond_counts(options, what)

    def read_candidates(self, metric: Metric, options: DecodeOptions) -> CandidateLists:
        """Read a list for each field of strings."""
        names = _string_fields(metric)
        return field_lists(options, metric, names) if names else CandidateLists()

    def estimate(self, data: DecodeInput, observer: Observer) -> Estimates:  # noqa: ARG002
        """Estimate the table."""
        fields = field_labels(cast("JointType", data.metric.type), data.candidates.by_field)
        found = inference.decode_joint(data.reports.counts, data.metric, fields, **data.level)
        anomalies, detected_only, rows = data.shown
        return reporting.joint_estimates(
            found,
            _joint_findings(found, anomalies),
            anomalies,
            data.made_by("one value a tuple"),
            detected_only,
            rows,
        )


def _string_fields(metric: Metric) -> list[str]:
    """Return the names of the fields whose values aren't listed."""
    fields = cast("JointType", metric.type).fields
    return [field.name for field in fields if isinstance(field.type, StringType)]


def field_labels(
    metric_type: JointType, strings: Mapping[str, tuple[str, ...]]
) -> tuple[FieldLabels, ...]:
    """Return the fields with all their values; of string fields, the given candidates."""
    return tuple(
        inference.FieldLabels(
            field.name, strings.get(field.name) or field.type.listed_values().labels
        )
        for field in metric_type.fields
    )


def _joint_findings(found: JointDecoding, anomalies: AnomalyReport | None) -> tuple[Finding, ...]:
    """Return the findings on the reports; the table's cells were looked for."""
    source = found.source
    if isinstance(source, inference.CategoryDecoding):
        findings = reporting.category_findings(source, anomalies)
    else:
        findings = reporting.string_findings(source, anomalies)
    return tuple(
        each._replace(code="cells", label="cells")
        if each.code in {"categories", "candidates"}
        else each
        for each in findings
    )


def _refuse_beyond_counts(options: DecodeOptions, what: str) -> None:
    """Raise OptionError if whole reports or days are asked for; `what`: the metric and its type."""
    how = options
    if how.method == "likelihood":
        raise OptionError(
            Option("method", how.method), f": {what} is decoded from bit counts. Leave ",
            Option("method"), " out.",
        )  # fmt: skip
    if how.by == BY_DAY:
        raise OptionError(
            Option("by", how.by), f": {what} is decoded over all days at once; choose days with ",
            Option("since"), " and ", Option("until"), ".",
        )  # fmt: skip


def _refuse_lists_and_reports(
    metric: Metric, options: DecodeOptions, no_lists: str, no_reports: str
) -> None:
    """Raise OptionError, with the reasons given, for strings to look for, or whole reports."""
    what = f"metrics.{metric.name}.type = {metric.type.name!r}"
    for name in options.given("candidates", "map"):
        raise OptionError(name, f": must be left out; {what}{no_lists}.")
    if options.method == "likelihood":
        raise OptionError(
            Option("method", "likelihood"), f": {what}{no_reports}. Leave ",
            Option("method"), " out.",
        )  # fmt: skip


_Decoding = TypeVar("_Decoding")


def _days_estimates(
    data: DecodeInput,
    trends: Trends[_Decoding],
    findings: Callable[[_Decoding, AnomalyReport | None], tuple[Finding, ...]],
    way: str,
) -> Estimates:
    """Return days and their changes; `way`: how counts are decoded, for the provenance."""
    return reporting.trends_estimates(
        trends,
        data.reports.anomalies,
        data.made_by(f"{way}, day by day"),
        findings=findings(trends.pooled, data.reports.anomalies),
        limit=data.options.rows,
        looks=data.options.looks,
    )


_DECODERS: Mapping[str, type[TypeDecoder]] = {
    "string": StringDecoder,
    "open-string": OpenStringDecoder,
    "enum": CategoryDecoder,
    "boolean": BooleanDecoder,
    "ordinal": CategoryDecoder,
    "joint": JointDecoder,
    "number": NumberDecoder,
}


@cache
def _decoder_named(name: str) -> TypeDecoder:
    return _DECODERS[name]()


def decoder_of(metric: Metric) -> TypeDecoder:
    """Return the decoder of a metric's type."""
    return _decoder_named(metric.type.name)
