"""What the decoder does with a metric type: one class a type, found by the type's name.

`hubbub.protocol.metric_types` says how values become bits; a `TypeDecoder` says how reports become
a result again, and what is special about the type's privacy. The types' classes are in
`hubbub.decoder.metric_types`; an installed package brings its own by an entry point. Invariant:
nothing else in the decoder asks which type a metric has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from hubbub.inference.errors import DecoderError
from hubbub.protocol.metric_types.base import MetricType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams

if TYPE_CHECKING:
    from hubbub.decoder.reports.loading import DailyReports, ReportInput, SpoolFor
    from hubbub.decoder.screening.decoding import ScreenedList
    from hubbub.inference.blending.release import CentralRelease
    from hubbub.inference.candidates import Candidates
    from hubbub.inference.ratios import Ratios
    from hubbub.protocol.counts import CohortCounts
    from hubbub.reporting.provenance import Provenance
    from hubbub.reporting.result import Result

ENTRY_POINTS = "hubbub.type_decoders"
"""Group in which installed packages name the decoder of each of their types."""

_HERE = "hubbub.decoder.metric_types"
_BUILT_IN = {
    "string": f"{_HERE}.strings:StringDecoder",
    "open-string": f"{_HERE}.open_strings:OpenStringDecoder",
    "enum": f"{_HERE}.categories:CategoryDecoder",
    "boolean": f"{_HERE}.booleans:BooleanDecoder",
    "ordinal": f"{_HERE}.categories:CategoryDecoder",
    "joint": f"{_HERE}.joint:JointDecoder",
}


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How the input is decoded and what is written; see the command's --help.

    Attributes
    ----------
    correction : str
        A value of `hubbub.inference.testing.multiple_testing.Correction`.
    files : tuple of str
        Where to write, "-" being CSV on standard output.
    by : str, optional
        "day" for a result a day.
    candidate_cache : str, optional
        A folder of hashed candidates.
    method : str
        A value of `hubbub.inference.likelihood.choice.Method`.
    spreadsheet_safe : bool
        Whether CSV cells that a spreadsheet would run are quoted.
    extend : str
        Of open strings, look only for those that begin so.
    engine : str
        One of `hubbub.decoder.engines.ENGINES`.
    master : str, optional
        Where the engine's scheduler is; None: on this machine.
    """

    alpha: float
    correction: str
    detected_only: bool
    files: tuple[str, ...]
    rows: int
    min_reports: int
    by: str | None = None
    candidate_cache: str | None = None
    method: str = "auto"
    spreadsheet_safe: bool = False
    extend: str = ""
    engine: str = "local"
    master: str | None = None


class Job(Protocol):
    """One decoding: its options, and access to its reports and candidates."""

    @property
    def metric(self) -> Metric:
        """What is decoded."""

    @property
    def outputs(self) -> DecodeOptions:
        """How to decode, and what to write."""

    def named(self, *options: str) -> list[str]:
        """Return those of some input options that were given, as they are written."""

    def candidates(self) -> Candidates:
        """Read the strings to look for; a usage error if none are given."""

    def uses_streaming_screen(self) -> bool:
        """Say whether the strings are so given, and so little is asked, that a list is screened."""

    def screened(self, counts: CohortCounts) -> ScreenedList:
        """Return what is detected of a list that isn't read into memory."""

    def reports(self, spool_for: SpoolFor = ...) -> ReportInput:
        """Read and count the reports; see `load_reports`."""

    def reports_by_day(self, spool_for: SpoolFor = ...) -> tuple[DailyReports, ReportInput]:
        """Count the reports day by day, and together; see `load_days`."""

    def given_strings(self) -> tuple[str, ...]:
        """Return the candidates as they are, in their normal form; none if none were given."""

    def strings_by_field(self, fields: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the candidates of some fields; a usage error if one has none."""

    def release(self) -> CentralRelease | None:
        """Read what estimates are to be blended with, if anything is."""

    def note(self, text: str) -> None:
        """Tell the reader something that must not be overlooked."""

    def search_progress(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Show how far a search for open strings is."""

    def pass_counter(self) -> AbstractContextManager[Callable[[int, float], None]]:
        """Show passes over the reports and the gap that is left."""

    def provenance(
        self, reports: ReportInput, *, method: str, strings: Sequence[str] = ()
    ) -> Provenance | None:
        """Return where the result comes from, unless no output says it."""


_Type = TypeVar("_Type", bound=MetricType)


class TypeDecoder(ABC, Generic[_Type]):
    """The decoder's side of a metric type.

    Class attributes
    ----------------
    theorem : str
        What the metric's two epsilons rest on; {} is the number of RAPPOR's theorem.
    """

    theorem: ClassVar[str] = "Erlingsson, Pihur, Korolova 2014, theorem {}"

    finds_strings: ClassVar[bool] = False
    """Whether it finds strings by itself, so that --extend makes sense."""

    blends: ClassVar[bool] = False
    """Whether estimates can be blended with a central release, so that --blend makes sense."""

    def refusal(self, job: Job) -> str | None:  # noqa: ARG002
        """Return why an option of the job makes no sense for the type; None if all do."""
        return None

    @abstractmethod
    def decode(self, job: Job) -> Result:
        """Turn the job's reports into a result (raises DecoderError and StoreError)."""

    @abstractmethod
    def report_ratios(self, params: RapporParams, reports: int = 1) -> tuple[Ratios, ...]:
        """Return the likelihood ratios of the worst pair of values, in each direction that differs.

        From them follows how much shuffled reports hide (`hubbub.planning.amplification`).

        Parameters
        ----------
        reports : int
            How many a client makes of its permanent response; they count as one.
        """

    def linked_loss(self, ones: float, zeros: float, params: RapporParams) -> float:
        """Return the largest log likelihood ratio of linked reports of one value.

        By default two values set h bits each, none in common.

        Parameters
        ----------
        ones, zeros : float
            Log likelihood ratio of a true 1 against a true 0 if a bit of all the reports is 1, or
            if it is 0.
        """
        return params.h * abs(ones - zeros)


def decoder_of(metric: Metric) -> TypeDecoder[Any]:
    """Return the decoder of a metric's type.

    Raises
    ------
    DecoderError
        If neither hubbub nor an installed package has one.
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
    from importlib.metadata import EntryPoint, entry_points  # noqa: PLC0415 - see `cli.group`

    built_in = [EntryPoint(name, _BUILT_IN[name], ENTRY_POINTS)] if name in _BUILT_IN else []
    for point in (*built_in, *entry_points(group=ENTRY_POINTS, name=name)):
        return point.load()()  # type: ignore[no-any-return]
    return None
