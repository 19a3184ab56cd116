"""Which strings to look for: files, maps or strings themselves -> lists in the form a type needs.

A list is read once. What must be said of it, such as repeats that were left out, is returned with
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hubbub.decoder.candidates.files import STDIN, is_in_parts, list_files, read_list
from hubbub.decoder.options import CandidateInput, DecodeOptions, check_candidates
from hubbub.inference.candidates import Candidates, hashed
from hubbub.inference.errors import CandidateError
from hubbub.protocol.errors import Option, OptionError
from hubbub.protocol.metrics import Metric
from hubbub.protocol.params import RapporParams
from hubbub.rappor.map_files import is_uneven, read_map
from hubbub.reporting.provenance import Source, file_source, files_source, strings_source
from hubbub.storage.files.locations import resolve

_ALONE = RapporParams(8, 1, 1, 0.0, 0.25, 0.75)
"""Any parameters: where positions depend on a step or on other fields, these aren't used."""
_UNEVEN = (
    "some bits occur in the map far more often than others; p-values take them to be equally "
    "likely, and are too small where their hash doesn't make them so"
)


_LOOKED_AT = 1000

ODD_FORMS: Mapping[str, Callable[[str], bool]] = {
    "have a comma, a semicolon or a tab": lambda text: any(mark in text for mark in ",;\t"),
    "are in quotes": lambda text: len(text) > 2 and text[0] == text[-1] and text[0] in "\"'",
    "begin or end with a blank": lambda text: text != text.strip(),
}
"""What strings look like that were meant to be read in another way, as predicates."""


@dataclass(frozen=True, slots=True)
class CandidateLists:
    """The strings to look for, in the one form that the metric's type takes."""

    hashed: Candidates | None = None  # strings with their positions
    # Strings of each field, in their normal form; those of a metric without fields under "".
    by_field: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a reader must know about them
    corpus: tuple[str, ...] = ()  # strings to learn from, which aren't looked for

    def first_strings(self) -> Mapping[str, Sequence[str]]:
        """Return some of each list, by the column in which results have them."""
        if self.hashed is not None:
            return {"string": self.hashed.strings[:_LOOKED_AT]}
        return {name or "string": some[:_LOOKED_AT] for name, some in self.by_field.items()}

    @property
    def strings(self) -> Sequence[str]:
        """All strings that were read, in order."""
        if self.hashed is not None:
            return self.hashed.strings
        return [string for listed in self.by_field.values() for string in listed]


def list_candidates(
    candidates: CandidateInput | None,
    map_file: str | None,
    params: RapporParams,
    source: str = "the parameters",
) -> tuple[Candidates, tuple[str, ...]]:
    """Read a list of candidates ("-": standard input), or a map; also notes for the reader.

    `candidates`: a file, or the strings themselves, each once. `map_file`: instead of candidates, a
    file of strings and their bits. `params`: with which strings are hashed. `source`: the file that
    the parameters are from. Raises `CandidateError, InputError` if it can't be read, or holds
    something else.
    """
    if map_file is not None:
        found = read_map(map_file, params, source)
        notes = (_UNEVEN,) if is_uneven(found.candidates.positions(slice(None)), params) else ()
        return found.candidates, (*repeats_note(found.repeats), *notes)
    if isinstance(candidates, tuple):
        if not candidates:
            raise CandidateError("candidates: must be at least one string")
        return hashed(candidates, params), ()
    listed = read_list(candidates or STDIN)
    return listed.hashed(params), repeats_note(listed.repeats)


def repeats_note(left_out: int) -> tuple[str, ...]:
    """Return what is said of repeated strings, if any were left out.

    `left_out`: how many.
    """
    return (f"{left_out:,} repeated candidates left out",) if left_out else ()


def hashed_lists(options: DecodeOptions, metric: Metric) -> CandidateLists:
    """Read the list, or the map, with the metric's positions.

    `options`: name the list. `metric`: whose parameters hash it. Raises `OptionError` if there is
    no list, more than one, or one for each field. Raises `CandidateError, InputError` if it can't
    be read.
    """
    check_candidates(options)
    chosen, source = options.candidates, options.source
    listed, notes = list_candidates(
        _without_fields(chosen.candidates, metric),
        chosen.map,
        metric.params,
        source.params or source.metrics or "",
    )
    return CandidateLists(hashed=listed, notes=notes)


def plain_list(options: DecodeOptions, metric: Metric) -> CandidateLists:
    """Read the list, if there is one, without positions (raises as `hashed_lists`).

    `options`: may name a list. `metric`: it has no fields.
    """
    listed = _without_fields(options.candidates.candidates, metric)
    if listed is None:
        return CandidateLists()
    candidates, notes = list_candidates(listed, None, _ALONE)
    return CandidateLists(by_field={"": tuple(candidates.strings)}, notes=notes)


def field_lists(options: DecodeOptions, metric: Metric, fields: Sequence[str]) -> CandidateLists:
    """Read the lists of some fields, at least one, without positions.

    `options`: name the lists. `metric`: it has these fields. `fields`: names of the fields that
    need a list. Raises `OptionError` if a field has no list, or a list no field. Raises
    `CandidateError` if one can't be read.
    """
    given = options.candidates.candidates
    if given is not None and not isinstance(given, Mapping) and len(fields) == 1:
        given = {fields[0]: given}
    if not isinstance(given, Mapping) or given.keys() != set(fields):
        needed = [part for name in fields for part in (" ", Option("candidates", "FILE", name))]
        raise OptionError(f"metrics.{metric.name}: needs", *needed, ", and no other lists.")
    by_field: dict[str, tuple[str, ...]] = {}
    notes: list[str] = []
    for name in fields:
        candidates, own = list_candidates(given[name], None, _ALONE)
        by_field[name] = tuple(candidates.strings)
        notes += own
    return CandidateLists(by_field=by_field, notes=tuple(notes))


def candidate_sources(options: DecodeOptions, lists: CandidateLists) -> list[Source]:
    """Return the lists as a result's sources.

    They are named by the digest of their strings if they came through a pipe, which is read only
    once, or were no file at all.

    `options`: name the lists. `lists`: what was read.
    """
    given = options.candidates.candidates
    if isinstance(given, Mapping):
        return [
            _source(f"candidates of {name}", listed, lists.strings)
            for name, listed in given.items()
        ]
    sources = [] if given is None else [_source("candidates", given, lists.strings)]
    corpus = options.candidates.corpus
    return sources if corpus is None else [*sources, _source("corpus", corpus, lists.corpus)]


def _source(role: str, listed: CandidateInput, strings: Sequence[str]) -> Source:
    if isinstance(listed, tuple):
        return strings_source(role, strings, "a list")
    if is_in_parts(listed):
        return files_source(role, resolve(listed).name, list_files(listed))
    return file_source(role, listed) if _is_file(listed) else strings_source(role, strings)


def _is_file(address: str) -> bool:
    return address != STDIN and resolve(address).size() is not None


def _without_fields(
    given: CandidateInput | Mapping[str, CandidateInput] | None, metric: Metric
) -> CandidateInput | None:
    if isinstance(given, Mapping):
        raise OptionError(
            Option("candidates", "FIELD=FILE"), ": must be ", Option("candidates", "FILE"),
            f"; metrics.{metric.name} has no fields.",
        )  # fmt: skip
    return given
