"""Decode reports by metric type: one class per type, found by the type's name.

`hubbub.protocol.metric_types` turns values into bits; a `TypeDecoder` turns reports into
estimates, and states what is special about the type's privacy. The types' classes are in
`hubbub.decoder.metric_types`; an installed package brings its own by an entry point. Invariant:
nothing else in the decoder asks which type a metric has.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from hubbub.decoder.candidates import CandidateLists
from hubbub.decoder.options import BY_DAY, DecodeOptions
from hubbub.inference import Correction, DecoderError, Estimand, RepeatedReports, repeats_of
from hubbub.protocol import Metric, MetricType, Option, OptionError, RapporParams

if TYPE_CHECKING:
    from hubbub.decoder.reports import CountedReports
    from hubbub.inference import AnomalyReport, Choice, Comparison, Groups, Misfit, Ratios, Trends
    from hubbub.reporting import Estimates, Finding, Provenance
from typing import TYPE_CHECKING

ENTRY_POINTS = "hubbub.type_decoders"
"""Group in which installed packages name the decoder of each of their types."""

_HERE = "hubbub.decoder.metric_types"
_BUILT_IN = {
    "string": f"{_HERE}.strings:StringDecoder",
    "open-string": f"{_HERE}.open_strings:OpenStringDecoder",
    "enum": f"{_HERE}.categories:CategoryDecoder",
    "boolean": f"{_HERE}.categories:BooleanDecoder",
    "ordinal": f"{_HERE}.categories:CategoryDecoder",
    "joint": f"{_HERE}.joint:JointDecoder",
    "number": f"{_HERE}.numbers:NumberDecoder",
}


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
    def repeats(self) -> RepeatedReports:
        """How often the reports' clients have reported, and whose shares are asked for."""
        how = self.options
        least = how.min_reports if how.by == BY_DAY else 0
        decoded = {day: n for day, n in self.reports.day_sizes.items() if n >= least}
        estimand = Estimand(how.estimand)
        return repeats_of(self.metric, decoded, how.reports_per_client, estimand)

    @property
    def misfit(self) -> Misfit | None:
        """Counts that the metric's parameters make next to impossible, if any."""
        from hubbub.inference.misfit import misfit  # noqa: PLC0415 - see `cli`

        metric = self.metric
        if metric.type.width is not None:  # `known_rates` checks these
            return None
        true_bits = metric.type.true_bits(metric.params)
        return misfit(self.reports.counts, metric.params, true_bits, self.repeats)

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


_Type = TypeVar("_Type", bound=MetricType)


class TypeDecoder(ABC, Generic[_Type]):
    """The decoder's side of a metric type."""

    theorem: ClassVar[str] = "Erlingsson, Pihur, Korolova 2014, theorem {}"

    finds_strings: ClassVar[bool] = False
    """Whether it finds strings by itself, so that --extend makes sense."""

    follows_days: ClassVar[bool] = True
    """Whether each day can be estimated by itself, so that --by day makes sense."""

    def check(self, metric: Metric, options: DecodeOptions) -> None:
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
        from hubbub.inference import filter_ratios  # noqa: PLC0415 - it needs scipy

        return (filter_ratios(params, reports),)


def decoder_of(metric: Metric) -> TypeDecoder[Any]:
    """Return the decoder of a metric's type.

    Raises `DecoderError` if neither hubbub nor an installed package has one.
    """
    decoder = _decoder_named(metric.type.name)
    if decoder is None:
        raise DecoderError(
            f"metrics.{metric.name}.type = {metric.type.name!r}: no installed package decodes this "
            f"type; expected one with an entry point of this name in the group {ENTRY_POINTS}"
        )
    return decoder


@cache
def _decoder_named(name: str) -> TypeDecoder[Any] | None:
    from importlib.metadata import EntryPoint, entry_points  # noqa: PLC0415 - see `cli`

    built_in = [EntryPoint(name, _BUILT_IN[name], ENTRY_POINTS)] if name in _BUILT_IN else []
    for point in (*built_in, *entry_points(group=ENTRY_POINTS, name=name)):
        return point.load()()  # type: ignore[no-any-return]
    return None


def refuse_beyond_counts(options: DecodeOptions, what: str) -> None:
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


def refuse_lists_and_reports(
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


def estimate_days(
    data: DecodeInput,
    decode_days: Callable[..., Trends[_Decoding]],
    findings: Callable[[_Decoding, AnomalyReport | None], tuple[Finding, ...]],
    way: str,
) -> Estimates:
    """Decode each day, and find changes; `way`: how counts are decoded, for the provenance."""
    from hubbub.reporting import trends_estimates  # noqa: PLC0415 - seldom

    options, reports = data.options, data.reports
    trends = decode_days(
        reports.by_day,
        data.metric,
        alpha=options.alpha,
        correction=data.correction,
        min_reports=options.min_reports,
        repeats=data.repeats,
    )
    return trends_estimates(
        trends,
        reports.anomalies,
        data.made_by(f"{way}, day by day"),
        findings=findings(trends.pooled, reports.anomalies),
        limit=options.rows,
        looks=options.looks,
    )
