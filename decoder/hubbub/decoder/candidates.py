"""Lists of strings to look for -> the form that a metric's type takes.

A line of a text file is a string, or a row of a Parquet file's column; a map of google/rappor's
also gives positions. A string's bytes are kept as they are: nothing is stripped, quoted or
normalised. A list is read once, piece by piece; a `StringTable` and a hash of each string stay.
Whatever a reader must know of a list, such as repeats that were left out, is returned with it.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import IO, Any, NamedTuple

import numpy as np

from hubbub.decoder.options import CandidateInput, DecodeOptions, check_candidates
from hubbub.inference import (
    CandidateError,
    Candidates,
    StringTable,
    WordArray,
    canonical_forms,
    hash_words,
    hashed,
    of_words,
    repeated,
    string_offsets,
)
from hubbub.protocol import MAX_VALUE_BYTES, Metric, Option, OptionError, RapporParams
from hubbub.reporting import Source, file_source, strings_source
from hubbub.storage import (
    StorageError,
    open_parquet,
    open_unpacked,
    require_pyarrow,
    resolve,
    storage_errors,
)

STDIN = "-"
PARQUET = ".parquet"
COLUMNS = ("string", "candidate")
"""Columns of a Parquet file that are taken, the first one that there is."""
_PIECE_BYTES, _PIECE_ROWS = 2**18, 2**13
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_LINE = 8 * MAX_VALUE_BYTES
"""No normal form is so much shorter than its string that a longer line could be a value."""
_MOST_REPEATED_ROWS = 2**20  # some tens of megabytes; sorting more rarely costs nothing that shows


class Piece(NamedTuple):
    """Strings that follow one another."""

    encoded: Sequence[bytes]  # in what should be UTF-8
    path: str  # where they stand: the file, and "line" or "row"
    unit: str
    first: int  # number of the first one, from 1

    def place(self, index: int) -> str:
        """Return how a message names one of them."""
        return f"candidates {self.path}: {self.unit} {self.first + index}"


def read_pieces(path: str) -> Iterator[Piece]:
    """Yield the strings of a list, some thousands at a time.

    Of a Parquet file the column `string` is read, or else `candidate`, or else the only one that
    holds text. Of a text file, unpacked if its name ends in .gz, each line is a string, without a
    byte order mark and the carriage return of a Windows line end. Raises `CandidateError` for a
    line that is far too long, no such column, or a null in it; `OSError, EOFError, zlib.error,
    NotParquetError` if the list can't be read.
    """
    if path.endswith(PARQUET):
        yield from _rows_of(path)
    elif path == STDIN:
        yield from _lines_of(path, sys.stdin.buffer)
    else:
        with open_unpacked(path) as file:
            yield from _lines_of(path, file)


def _lines_of(path: str, file: IO[bytes]) -> Iterator[Piece]:
    """Yield the lines of text, some thousands at a time; otherwise as `read_pieces`."""
    first, rest, mark = 1, b"", _BYTE_ORDER_MARK
    while data := file.read(_PIECE_BYTES):
        complete, newline, after = data.removeprefix(mark).rpartition(b"\n")
        mark = b""
        if newline:
            lines = (rest + complete).replace(b"\r\n", b"\n").removesuffix(b"\r").split(b"\n")
            yield Piece(lines, path, "line", first)
            first, rest = first + len(lines), after
        else:
            rest += after
        if len(rest) > _LONGEST_LINE:
            place = Piece((), path, "line", first).place(0)
            raise CandidateError(
                f"{place}: over {_LONGEST_LINE} bytes; expected at most {MAX_VALUE_BYTES} bytes of "
                "UTF-8"
            )
    if rest:
        yield Piece([rest.removesuffix(b"\r")], path, "line", first)


def _rows_of(path: str) -> Iterator[Piece]:
    """Yield the rows of a Parquet file; otherwise as `read_pieces`."""
    pa = require_pyarrow()
    try:
        with open_parquet(resolve(path)) as file:
            column = _text_column(pa, path, file.schema_arrow)
            first = 1
            for batch in file.iter_batches(_PIECE_ROWS, columns=[column], use_threads=False):
                values = batch.column(0)
                if values.null_count:
                    row = first + values.is_null().to_pylist().index(True)
                    raise CandidateError(
                        f"candidates {path}: row {row}, column {column}: is null; expected a string"
                    )
                encoded = values.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
                yield Piece(encoded, path, "row", first)
                first += batch.num_rows
    except pa.ArrowException as error:
        raise NotParquetError(str(error)) from error


def _text_column(pa: Any, path: str, schema: Any) -> str:
    kinds = [str(field.type) for field in schema]
    texts = [field.name for field in schema if _is_text(pa, field.type)]
    named = [name for name in COLUMNS if name in schema.names]
    wanted = named[:1] or texts
    if len(wanted) != 1 or schema.names.count(wanted[0]) != 1:
        found = ", ".join(f"{n} ({kind})" for n, kind in zip(schema.names, kinds, strict=True))
        raise CandidateError(
            f"candidates {path}: columns {found or 'none'}; expected one named "
            f"{' or '.join(COLUMNS)}, or only one that holds text"
        )
    if wanted[0] not in texts:
        kind = kinds[schema.names.index(wanted[0])]
        raise CandidateError(f"candidates {path}: column {wanted[0]}: {kind}; expected text")
    return str(wanted[0])


def _is_text(pa: Any, kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


@dataclass(frozen=True, slots=True, eq=False)
class CandidateList:
    """Distinct candidates in the order of the file."""

    strings: StringTable
    words: WordArray  # shape (n, 2); their hashes
    repeats: int  # strings left out because an earlier one is the same

    def __len__(self) -> int:
        return len(self.strings)

    def hashed(self, params: RapporParams) -> Candidates:
        """Return the candidates with the positions that hubbub's clients give them."""
        return of_words(self.strings, self.words, params)


def read_list(path: str) -> CandidateList:
    """Read a list of candidates in their normal form (NFC), and leave out repeats.

    Raises `CandidateError`, which names the line, if it can't be read, holds no string, or one that
    no client could report: not UTF-8, or too long.
    """
    table = _TableInMaking()
    try:
        with storage_errors(resolve(path)):
            for piece in read_pieces(path):
                canonical = canonical_forms(piece.encoded, piece.place)
                table.add(canonical, hash_words(canonical))
    except StorageError as error:
        raise CandidateError(f"candidates {error}") from error
    except (OSError, EOFError, zlib.error, NotParquetError) as error:
        after = f" after {_unit(path)} {table.given}" if table.given else ""
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        kinds = {PARQUET: "a Parquet file", ".gz": "gzip"}
        expected = kinds.get(PurePath(path).suffix, "a file or pipe")
        raise CandidateError(
            f"candidates {path}: can't be read{after}: {reason}; expected {expected}"
        ) from error
    if not table.given:
        raise CandidateError(f"candidates {path}: empty; expected one string per {_unit(path)}")
    return table.finished()


class NotParquetError(Exception):
    """A file isn't Parquet, or is damaged."""


class _TableInMaking:
    """A growing table; repeats are dropped whenever it has doubled."""

    def __init__(self) -> None:
        self.given = 0
        self._blob, self._lengths, self._words = bytearray(), bytearray(), bytearray()
        self._rows = self._distinct = 0

    def add(self, encoded: Sequence[bytes], words: WordArray) -> None:
        self.given += len(encoded)
        self._rows += len(encoded)
        self._blob += b"".join(encoded)
        self._lengths += np.fromiter(map(len, encoded), np.int64, len(encoded)).data
        self._words += words.data
        if self._rows > 2 * max(_MOST_REPEATED_ROWS, self._distinct):
            self._drop_repeats()

    def finished(self) -> CandidateList:
        blob = np.frombuffer(self._blob, dtype=np.uint8)
        lengths = np.frombuffer(self._lengths, dtype=np.int64)
        words = np.frombuffer(self._words, dtype=np.uint32).reshape(-1, 2)
        strings = StringTable(blob, string_offsets(lengths))
        again = repeated(words, strings.equal)
        if again.any():
            strings, words = strings.only(~again), words[~again]
        return CandidateList(strings, words, self.given - len(strings))

    def _drop_repeats(self) -> None:
        distinct = self.finished()
        if len(distinct) < self._rows:
            self._blob = bytearray(distinct.strings.blob.data)
            self._lengths = bytearray(np.diff(distinct.strings.offsets).data)
            self._words = bytearray(distinct.words.data)
        self._rows = self._distinct = len(distinct)


def _unit(path: str) -> str:
    return "row" if path.endswith(PARQUET) else "line"


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
"""Signs, as predicates, of strings that were meant to be read in another way."""


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
    """Read a list of candidates ("-": standard input), or instead a map; also notes for the reader.

    `source` names the file that the parameters are from. Raises `CandidateError, InputError` if it
    can't be read, or holds something else.
    """
    if map_file is not None:
        from hubbub.rappor import is_uneven, read_map  # noqa: PLC0415 - seldom

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
    """Return the note about repeated strings, if any were left out."""
    return (f"{left_out:,} repeated candidates left out",) if left_out else ()


def hashed_lists(options: DecodeOptions, metric: Metric) -> CandidateLists:
    """Read the list, or the map, with the metric's positions.

    Raises `OptionError` if there is no list, more than one, or one for each field; `CandidateError,
    InputError` if it can't be read.
    """
    check_candidates(options)
    listed, notes = list_candidates(
        _without_fields(options.candidates, metric),
        options.map,
        metric.params,
        options.params or options.metrics or "",
    )
    return CandidateLists(hashed=listed, notes=notes)


def plain_list(options: DecodeOptions, metric: Metric) -> CandidateLists:
    """Read the list, if there is one, without positions (raises as `hashed_lists`)."""
    listed = _without_fields(options.candidates, metric)
    if listed is None:
        return CandidateLists()
    candidates, notes = list_candidates(listed, None, _ALONE)
    return CandidateLists(by_field={"": tuple(candidates.strings)}, notes=notes)


def field_lists(options: DecodeOptions, metric: Metric, fields: Sequence[str]) -> CandidateLists:
    """Read the lists of some fields, at least one, without positions (raises as `hashed_lists`)."""
    given = options.candidates
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
    """Return the lists as a result's sources: by their strings' digest if they were no file."""
    given = options.candidates
    if isinstance(given, Mapping):
        return [
            _source(f"candidates of {name}", listed, lists.strings)
            for name, listed in given.items()
        ]
    sources = [] if given is None else [_source("candidates", given, lists.strings)]
    corpus = options.corpus
    return sources if corpus is None else [*sources, _source("corpus", corpus, lists.corpus)]


def _source(role: str, listed: CandidateInput, strings: Sequence[str]) -> Source:
    if isinstance(listed, tuple):
        return strings_source(role, strings, "a list")
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
