"""Options -> a result: what `hubbub-decoder decode` and notebooks call.

The metric's type does the decoding, and asks the job for what it needs. Fewer reports than a
release needs don't get past the job. Candidates are read before reports, so that the mistakes that
are quickly found come first.
"""

from __future__ import annotations

import datetime as dt
import os
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from hubbub.decoder.candidates.cache import read_candidates
from hubbub.decoder.candidates.files import STDIN, is_in_parts, list_files
from hubbub.decoder.engines import Engine, open_engine
from hubbub.decoder.engines.local import LocalEngine
from hubbub.decoder.inputs import (
    MIN_REPORTS,
    MIN_REPORTS_VARIABLE,
    STORE,
    CandidateInput,
    InputOptions,
    check_candidates,
    check_outputs,
    check_reports,
)
from hubbub.decoder.reports.loading import (
    DailyReports,
    ReportInput,
    SpoolFor,
    load_days,
    load_file,
    load_reports,
    require_enough,
    require_reports,
)
from hubbub.decoder.type_decoder import DecodeOptions, decoder_of
from hubbub.inference.anomalies import AnomalyDetector
from hubbub.inference.candidates import Candidates, hashed
from hubbub.inference.errors import CandidateError, InputError
from hubbub.inference.likelihood.choice import Method
from hubbub.inference.testing.multiple_testing import Correction
from hubbub.protocol.errors import OptionError, ParameterError
from hubbub.protocol.metric_types.strings import StringType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.protocol.registry import Registry
from hubbub.rappor.csv_files import read_counts, read_params
from hubbub.rappor.map_files import is_uneven, read_map
from hubbub.reporting.provenance import (
    Provenance,
    Source,
    canonical,
    counts_source,
    digest,
    file_source,
    files_source,
    strings_source,
)
from hubbub.reporting.result import Result
from hubbub.storage.files.locations import resolve

if TYPE_CHECKING:
    from hubbub.decoder.screening.decoding import ScreenedList
    from hubbub.inference.blending.release import CentralRelease
    from hubbub.protocol.counts import CohortCounts

_Loaded = TypeVar("_Loaded")
_Listed = str | PathLike[str] | Iterable[str]
_UNEVEN = (
    "some bits occur in the map far more often than others; p-values take them to be equally "
    "likely, and are too small where their hash doesn't make them so"
)


class Observer:
    """Told how a decoding goes on; by itself it warns of notes, and shows nothing else."""

    def note(self, text: str) -> None:
        """Tell the reader something about the input."""
        warnings.warn(text, stacklevel=2)

    def counting(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Return a context for counting reports; yields update(done, total)."""
        return nullcontext(lambda _done, _total: None)

    def searching(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Return a context for finding open strings; yields update(done, steps)."""
        return nullcontext(lambda _done, _total: None)

    def maximising(self) -> AbstractContextManager[Callable[[int, float], None]]:
        """Return a context for maximising the likelihood; yields update(passes, gap)."""
        return nullcontext(lambda _passes, _gap: None)


def decode_metric(
    metric: str | None = None,
    *,
    metrics: str | PathLike[str] | None = None,
    store: str | None = None,
    reports: str | PathLike[str] | None = None,
    counts: str | PathLike[str] | None = None,
    params: str | PathLike[str] | None = None,
    candidates: _Listed | Mapping[str, _Listed] | None = None,
    map: str | PathLike[str] | Mapping[str, str | PathLike[str]] | None = None,  # noqa: A002
    schema: str | PathLike[str] | None = None,
    since: dt.date | str | None = None,
    until: dt.date | str | None = None,
    by: str | None = None,
    method: str = "auto",
    alpha: float = 0.05,
    correction: str = "bh",
    detected_only: bool = False,
    rows: int = 40,
    min_reports: int | None = None,
    candidate_cache: str | PathLike[str] | None = None,
    extend: str = "",
    blend: str | PathLike[str] | None = None,
    engine: str = "local",
    master: str | None = None,
) -> Result:
    """Decode reports: the result that `hubbub-decoder decode` writes, as an object.

    Arguments are the command's options (`hubbub-decoder decode --help`), and errors name them so.

    Parameters
    ----------
    metric, metrics : str, path
        The metric's name, and the registry's file.
    store : str
        The collector's database, or "parquet:DIR" for an export.
    reports, counts, params : path
        A Parquet file of reports; google/rappor's counts.csv and params.csv.
    candidates : path, or iterable of str, or mapping
        Strings to look for; a lone string is a file's name, a folder's or a pattern of names. Of a
        joint metric those of each field of strings, by its name.
    map : path, or mapping
        Instead of candidates, google/rappor's map.csv; with `schema` that of each variable of
        strings, by its name.
    schema : path
        google/rappor's rappor-vars.csv, for `reports` of several variables side by side.
    since, until : datetime.date or str
        UTC days, both included, such as "2026-11-01".
    by : "day", optional
    method : "auto", "likelihood" or "regression"
    alpha : float
        Error rate of what is called detected, in (0, 1).
    correction : "bh" or "bonferroni"
    detected_only : bool
        Whether rows of what isn't detected are left out. With method "regression", or candidates
        in several files, the list then needn't fit in memory.
    rows : int
        Most rows that are shown; tables and files hold them all.
    min_reports : int, optional
        Refuse to decode fewer reports than this; with `by`, on any day. By default
        HUBBUB_MIN_REPORTS of the environment, or 1,000.
    candidate_cache : path
        Directory to keep hashed candidates of a file in.
    extend : str
        Of a metric of type open-string, look only for strings that begin so.
    blend : path
        Of a metric of strings, an opted-in group's counts, as `hubbub-release` writes them.
    engine : "local", "dask" or "spark"
        Where files of reports are counted, and kept if they are needed whole and many, and lists
        that are screened are tested.
    master : str, optional
        The address of a Dask scheduler, or Spark's master; by default workers of this machine.

    Returns
    -------
    Result
        A table for pandas, polars and Arrow (the Arrow PyCapsule interface); Jupyter shows it, and
        `plot()` draws it.

    Raises
    ------
    OptionError
        If arguments leave something open, contradict each other or don't suit the metric's type.
    DecoderError, StoreError, HubbubError, OSError
        As the command: if something can't be read, or isn't what it should be.
    ValueError
        If an argument has none of the values that it may have.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha = {alpha}: must be between 0 and 1")
    if by not in {None, "day"}:
        raise ValueError(f"by = {by!r}: must be 'day' or None")
    listed: CandidateInput | dict[str, CandidateInput] | None
    if isinstance(candidates, Mapping):
        listed = {field: _listed(strings) for field, strings in candidates.items()}
    else:
        listed = None if candidates is None else _listed(candidates)
    inputs = InputOptions(
        metric=metric,
        metrics=_path(metrics),
        store=store,
        reports=_path(reports),
        counts=_path(counts),
        params=_path(params),
        candidates=listed,
        map=(
            {variable: os.fspath(path) for variable, path in map.items()}
            if isinstance(map, Mapping)
            else _path(map)
        ),
        since=_day(since),
        until=_day(until),
        schema=_path(schema),
        blend=_path(blend),
    )
    if min_reports is None:
        min_reports = int(os.environ.get(MIN_REPORTS_VARIABLE, MIN_REPORTS))
    outputs = DecodeOptions(
        alpha=alpha,
        correction=Correction(correction).value,
        detected_only=detected_only,
        files=(),
        rows=rows,
        min_reports=min_reports,
        by=by,
        candidate_cache=_path(candidate_cache),
        method=Method(method).value,
        extend=extend,
        engine=engine,
        master=master,
    )
    check_reports(inputs)
    check_outputs(inputs, outputs)
    with threadpool_limits(1):
        return decode_inputs(inputs, outputs)


def _listed(strings: _Listed) -> CandidateInput:
    if isinstance(strings, str | PathLike):
        return os.fspath(strings)
    return tuple(dict.fromkeys(strings))


def _path(path: str | PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


def _day(day: dt.date | str | None) -> dt.date | None:
    if isinstance(day, str):
        return dt.date.fromisoformat(day)
    return day.date() if isinstance(day, dt.datetime) else day


def decode_inputs(
    inputs: InputOptions,
    outputs: DecodeOptions,
    observer: Observer | None = None,
    *,
    provenance: bool = True,
) -> Result:
    """Decode what options name, which were checked; otherwise as `decode_metric`.

    Parameters
    ----------
    provenance : bool
        Whether the result says where it comes from, for which files are read once more.
    """
    if inputs.schema is not None:
        return _decode_variables(inputs, outputs, observer or Observer(), provenance)
    job = DecodeJob(inputs, outputs, _metric(inputs), observer or Observer(), provenance)
    decoder = decoder_of(job.metric)
    refusal = decoder.refusal(job)
    if outputs.extend and not decoder.finds_strings:
        refusal = (
            f"--extend: must be left out; metrics.{job.metric.name}.type = "
            f"{job.metric.type.name!r} isn't searched prefix by prefix, as an open-string is."
        )
    if inputs.blend is not None and not decoder.blends:
        refusal = (
            f"--blend: must be left out; metrics.{job.metric.name}.type = "
            f"{job.metric.type.name!r} can't be blended with a release, as a string with "
            "--candidates can."
        )
    if refusal:
        raise OptionError(refusal)
    with open_engine(outputs.engine, outputs.master) as engine:
        return decoder.decode(replace(job, engine=engine))


def _decode_variables(
    inputs: InputOptions, outputs: DecodeOptions, observer: Observer, provenance: bool
) -> Result:
    """Decode google/rappor's reports of several variables, which no registry has."""
    from hubbub.decoder.association import (  # noqa: PLC0415 - seldom
        AssociationFiles,
        decode_files,
        facts_of,
    )
    from hubbub.reporting.joint import JointResult  # noqa: PLC0415

    maps = inputs.map if isinstance(inputs.map, Mapping) else {}
    schema, reports = inputs.schema or "", inputs.reports or ""
    found = decode_files(
        AssociationFiles(schema, reports, maps, inputs.metric, inputs.params),
        alpha=outputs.alpha,
        correction=Correction(outputs.correction),
        min_reports=outputs.min_reports,
    )
    for note in found.notes:
        observer.note(note)
    origin = None
    if provenance:
        parameters = found.params._asdict()
        sources = [("schema", schema), ("params", str(found.params_path)), ("reports", reports)]
        sources += [(f"map of {name}", path) for name, path in sorted(maps.items())]
        origin = Provenance(
            metric=found.schema.metric,
            metric_version=None,
            parameters=parameters,
            parameters_sha256=digest(canonical(parameters)),
            settings={
                "alpha": f"{outputs.alpha:g}",
                "correction": outputs.correction,
                "method": "likelihood of all variables together",
                "min_reports": f"{outputs.min_reports}",
            },
            days="not known",
            sources=tuple(file_source(role, path) for role, path in sources),
        )
    return JointResult(
        found.decoding,
        None,
        origin,
        outputs.detected_only,
        outputs.rows,
        facts_of(found.decoding),
    )


def _metric(inputs: InputOptions) -> Metric:
    """Return what is decoded; a params.csv stands for a metric of strings in no registry."""
    if inputs.metric is not None:
        return Registry.load(inputs.metrics or "")[inputs.metric]
    path = inputs.params or ""
    params: RapporParams = read_params(path)
    if inputs.counts is None:
        try:
            params = RapporParams(*params)
        except ParameterError as error:
            raise InputError(f"{path}: {error}; only --counts may have other parameters") from error
    return Metric(
        application="",
        name=path,
        version=1,
        type=StringType(),
        params=params,
        description="",
        owner="",
        expires=dt.date.max,
    )


def list_candidates(
    candidates: CandidateInput | None,
    map_file: str | None,
    params: RapporParams,
    cache: Path | None = None,
    source: str = "the parameters",
) -> tuple[Candidates, tuple[str, ...]]:
    """Read a list of candidates ("-": standard input), or a map; also notes for the reader.

    Parameters
    ----------
    candidates : str or tuple of str, optional
        A file, or the strings themselves, each once.
    cache : Path, optional
        Directory in which hashed lists are kept.
    source : str
        The file that the parameters are from.

    Raises
    ------
    CandidateError, InputError
        If it can't be read, or holds something else.
    """
    if map_file is not None:
        found = read_map(map_file, params, source)
        notes = (_UNEVEN,) if is_uneven(found.candidates.positions(slice(None)), params) else ()
        return found.candidates, (*_repeats(found.repeats), *notes)
    if isinstance(candidates, tuple):
        if not candidates:
            raise CandidateError("candidates: must be at least one string")
        return hashed(candidates, params), ()
    listed = read_candidates(candidates or "-", cache)
    return listed.hashed(params), (*listed.notes, *_repeats(listed.repeats))


def _repeats(left_out: int) -> tuple[str, ...]:
    return (f"{left_out:,} repeated candidates left out",) if left_out else ()


def _candidates_source(role: str, listed: CandidateInput, strings: Sequence[str]) -> Source:
    if isinstance(listed, tuple):
        return strings_source(role, strings, "a list")
    if is_in_parts(listed):
        return files_source(role, resolve(listed).name, list_files(listed))
    return file_source(role, listed) if _is_file(listed) else strings_source(role, strings)


def _is_file(address: str) -> bool:
    return address != STDIN and resolve(address).size() is not None


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """What is asked for, as a type's decoder sees it (`type_decoder.Job`)."""

    inputs: InputOptions
    outputs: DecodeOptions
    metric: Metric
    observer: Observer
    wants_provenance: bool
    engine: Engine = field(default_factory=LocalEngine)

    def named(self, *options: str) -> list[str]:
        """Return those of some options that were given, as a person wrote them."""
        return self.inputs.names(*options)

    def candidates(self) -> Candidates:
        """Read the list or map, and pass on notes about it; an OptionError if there is neither."""
        check_candidates(self.inputs)
        cache = Path(self.outputs.candidate_cache) if self.outputs.candidate_cache else None
        inputs = self.inputs
        if cache and isinstance(inputs.candidates, str) and is_in_parts(inputs.candidates):
            raise OptionError(
                f"--candidate-cache belongs to one file; --candidates {inputs.candidates} is "
                "several."
            )
        source = inputs.params or inputs.metrics or ""
        listed, notes = list_candidates(
            self._one_list(), self._one_map(), self.metric.params, cache, source
        )
        for note in notes:
            self.observer.note(note)
        return listed

    def uses_streaming_screen(self) -> bool:
        """Say whether the list is screened, in parts, instead of being read into memory.

        It depends on what is asked for alone, not on the engine or how long the list is. A
        CandidateError or OptionError if there is no list, or more than one.
        """
        check_candidates(self.inputs)
        inputs, outputs, listed = self.inputs, self.outputs, self.inputs.candidates
        if not isinstance(listed, str) or listed == STDIN or outputs.method == "likelihood":
            return False
        if not outputs.detected_only or outputs.candidate_cache or inputs.blend is not None:
            return False
        return is_in_parts(listed) or (outputs.method == "regression" and _is_file(listed))

    def screened(self, counts: CohortCounts) -> ScreenedList:
        """Find the detected strings of a list that is screened, and pass on notes about it."""
        from hubbub.decoder.screening.decoding import screen  # noqa: PLC0415 - seldom

        outputs = self.outputs
        found = screen(
            counts,
            self.metric.params,
            str(self.inputs.candidates),
            self.engine,
            alpha=outputs.alpha,
            correction=Correction(outputs.correction),
        )
        for note in _repeats(found.repeats):
            self.observer.note(note)
        return found

    def _one_map(self) -> str | None:
        return None if isinstance(self.inputs.map, Mapping) else self.inputs.map

    def _one_list(self) -> CandidateInput | None:
        if isinstance(self.inputs.candidates, Mapping):
            raise OptionError(
                f"--candidates FIELD=FILE: must be --candidates FILE; metrics.{self.metric.name} "
                "has no fields."
            )
        return self.inputs.candidates

    def reports(self, spool_for: SpoolFor = lambda _total, _counted: None) -> ReportInput:
        """Count the reports of the store, the file of reports, or the file of counts."""
        metric, needed = self.metric, self.outputs.min_reports
        if self.inputs.counts is not None:
            counts = read_counts(self.inputs.counts, metric.params)
            require_enough(self.inputs.counts, counts.total, needed)
            return ReportInput(counts)
        detector = AnomalyDetector(metric)
        with self.observer.counting() as update:
            if self.inputs.reports is not None:
                path = self.inputs.reports
                reports = load_file(
                    path,
                    metric,
                    engine=self.engine,
                    detector=detector,
                    spool_for=spool_for,
                    progress=update,
                )
                require_enough(path, reports.counts.total, needed)
            else:
                since, until = self._days()
                loading = load_reports(
                    self.inputs.store or STORE,
                    metric,
                    since,
                    until,
                    engine=self.engine,
                    detector=detector,
                    spool_for=spool_for,
                    progress=update,
                )
                reports = _run(loading)
                require_reports(metric, reports.counts.total, needed, since, until)
            return reports

    def reports_by_day(
        self, spool_for: SpoolFor = lambda _total, _counted: None
    ) -> tuple[DailyReports, ReportInput]:
        """Count the reports of the store day by day, and together."""
        detector = AnomalyDetector(self.metric)
        with self.observer.counting() as update:
            loading = load_days(
                self.inputs.store or STORE,
                self.metric,
                *self._days(),
                min_reports=self.outputs.min_reports,
                engine=self.engine,
                detector=detector,
                spool_for=spool_for,
                progress=update,
            )
            daily = _run(loading)
        counts = reduce(add, daily.by_day.values())
        return daily, ReportInput(counts, detector.result(), daily.whole)

    def given_strings(self) -> tuple[str, ...]:
        """Read the list, if there is one; its strings in their normal form, each once."""
        listed = self._one_list()
        return () if listed is None else self._strings(listed)

    def strings_by_field(self, fields: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Read the lists of some fields, at least one; otherwise as `given_strings`.

        Raises
        ------
        OptionError
            If a field has no list, or a list no field.
        """
        given = self.inputs.candidates
        if given is not None and not isinstance(given, Mapping) and len(fields) == 1:
            given = {fields[0]: given}
        if not isinstance(given, Mapping) or given.keys() != set(fields):
            needed = " ".join(f"--candidates {field}=FILE" for field in fields)
            raise OptionError(f"metrics.{self.metric.name}: needs {needed}, and no other lists.")
        return {field: self._strings(given[field]) for field in fields}

    def _strings(self, candidates: CandidateInput) -> tuple[str, ...]:
        # The positions aren't used: they depend on a cohort's step, or on other fields.
        alone = RapporParams(8, 1, 1, 0.0, 0.25, 0.75)
        listed, notes = list_candidates(candidates, None, alone)
        for note in notes:
            self.observer.note(note)
        return tuple(listed.strings)

    def release(self) -> CentralRelease | None:
        """Read the release of an opted-in group, if there is one."""
        if self.inputs.blend is None:
            return None
        from hubbub.decoder.central import read_release  # noqa: PLC0415 - seldom

        return read_release(Path(self.inputs.blend))

    def note(self, text: str) -> None:
        """Pass on a note to whoever looks on."""
        self.observer.note(text)

    def search_progress(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Show the steps of a search for open strings."""
        return self.observer.searching()

    def pass_counter(self) -> AbstractContextManager[Callable[[int, float], None]]:
        """Show the likelihood's passes."""
        return self.observer.maximising()

    def provenance(
        self, reports: ReportInput, *, method: str, strings: Sequence[str] = ()
    ) -> Provenance | None:
        """Return where a result comes from, unless nobody asks.

        Candidates are named by the digest of `strings` if they came through a pipe, which is read
        only once, or were no file at all.
        """
        inputs, outputs = self.inputs, self.outputs
        if not self.wants_provenance:
            return None
        sources: list[Source] = []
        if isinstance(inputs.candidates, Mapping):
            for field, listed in inputs.candidates.items():
                sources.append(_candidates_source(f"candidates of {field}", listed, strings))
        elif inputs.candidates is not None:
            sources.append(_candidates_source("candidates", inputs.candidates, strings))
        files = (
            ("params", inputs.params),
            ("map", self._one_map()),
            ("release", inputs.blend),
            ("counts file", inputs.counts),
            ("reports", inputs.reports),
        )
        sources += [file_source(role, path) for role, path in files if path is not None]
        days = "not known"
        if inputs.metric is not None and inputs.reports is None:
            since, until = self._days()
            days = f"{since or 'the first'} to {until or 'the last'}"
        parameters = self.metric.params._asdict()
        return Provenance(
            metric=Path(self.metric.name).name,
            metric_version=self.metric.version if inputs.metric else None,
            parameters=parameters,
            parameters_sha256=digest(canonical(parameters)),
            settings={
                "alpha": f"{outputs.alpha:g}",
                "correction": outputs.correction,
                "method": method,
                "min_reports": f"{outputs.min_reports}",
            },
            days=days,
            sources=(*sources, counts_source("counts", reports.counts)),
        )

    def _days(self) -> tuple[dt.date | None, dt.date | None]:
        return self.inputs.since, self.inputs.until


def _run(loading: Coroutine[None, None, _Loaded]) -> _Loaded:
    """Await it to its end; in a thread of its own where a loop is running, as in Jupyter."""
    import asyncio  # noqa: PLC0415 - files need no loop, and it takes long to import

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(loading)
    with ThreadPoolExecutor(1, "load") as thread:
        return thread.submit(asyncio.run, loading).result()
