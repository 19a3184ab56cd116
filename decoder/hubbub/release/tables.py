"""Files -> rows of users, at most so many each.

What a cell means follows from that cell alone: as a key it is its text in NFC, as a number its
text's value, and other text doesn't count. Which rows of a user count, and which block or half a
user is in, follows from a keyed hash of the user's name and the order of the user's own rows.
Invariant: adding or removing a user changes nothing of what is kept of others, nor what it means.

CSV files as RFC 4180 has them -> tables of text.

A reader that forgives lets one person's cell hide other people's rows: an open quote swallows all
lines up to the next one, and a carriage return begins a line that no one wrote. `csv` in strict
mode refuses both, by file and line; a line break within a cell is refused as well, for a stray
quote looks the same. Invariant: no message quotes a cell.

What a curator declares of a table, for good, before anything is asked of it.

All of it is public, and must be chosen without looking at the data: bounds that are taken from the
smallest and largest value publish both.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum, StrEnum, auto
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import parquet

from hubbub.inference import BoolArray, FloatArray, IntArray
from hubbub.protocol import normal_form
from hubbub.release.errors import DataError, LedgerError, QueryError
from hubbub.reporting import visible

_ROWS = 65_536  # that are Python's strings at a time
_FAULTS = {
    "unexpected end of data": "a quote that none closes",
    "',' expected after '\"'": "text after a closing quote; expected a comma or the line's end, "
    "or two quotes for one within the cell",
    "new-line character seen": "a carriage return without a line feed; expected lines that end in "
    "LF or CRLF",
    "field larger than": "a cell of more than 131,072 characters",
}
"""Messages of `csv`, and how people can mend the file."""


def read_csv(path: Path, columns: Sequence[str] | None) -> Any:
    """Return an Arrow table of those of some columns that the file has; all cells are text.

    Of all columns, if none are named, there are no rows. Types aren't guessed, which would let one
    row change what others mean. Raises `DataError` for what breaks RFC 4180.
    """
    # Lines end in a line feed alone, so that `csv` sees, and refuses, a stray carriage return.
    opener = gzip.open if path.suffix == ".gz" else open
    with cast("TextIO", opener(path, "rt", encoding="utf-8-sig", newline="\n")) as file:
        records = _records(path, file)
        names = next(records, [])
        if columns is None and not names:
            raise DataError(f"{path}: can't be read: it is empty")
        wanted = names if columns is None else [name for name in columns if name in names]
        schema = pa.schema([(name, pa.string()) for name in wanted])
        tables = [schema.empty_table()]
        if columns is None:
            return tables[0]
        places = [names.index(name) for name in wanted]
        while rows := list(islice(records, _ROWS)):
            cells = [pa.array([row[place] for row in rows], pa.string()) for place in places]
            tables.append(pa.table(cells, schema=schema))
    return pa.concat_tables(tables)


def _records(path: Path, file: TextIO) -> Iterator[list[str]]:
    """Yield the cells of each record, all of which have as many as the first."""
    lines = csv.reader(file, strict=True)
    expected, first = 0, 1
    try:
        for record in lines:
            cells = record or [""]  # an empty line
            if lines.line_num > first or "\r" in "".join(cells):
                raise DataError(
                    f"{path}: line {first}: a line break in a cell, or a quote that none closes; "
                    "if cells are to hold line breaks, write the table as .parquet"
                )
            expected = expected or len(cells)
            if len(cells) != expected:
                raise DataError(
                    f"{path}: line {first}: cells = {len(cells)}: must be {expected}, as in the "
                    "first line"
                )
            yield cells
            first = lines.line_num + 1
    except csv.Error as error:
        fault = next((ours for its, ours in _FAULTS.items() if str(error).startswith(its)), "")
        raise DataError(f"{path}: line {first}: {fault or error} (RFC 4180)") from error


_MOST_ROWS = 1_000_000  # times a column's largest value, in steps, is far below 2^63


class Excess(StrEnum):
    """The fate of rows beyond those that a user may have."""

    SAMPLE = "sample"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Declared facts of a table."""

    data: Path  # a file, or a directory of files of one form
    user_column: str  # names the person whom a row belongs to
    columns: tuple[str, ...]  # the other columns, those that may be asked for
    rows_per_user: int  # most rows that a user has in what is released
    excess: Excess
    # Ranges of columns of numbers; values are clipped to them.
    bounds: Mapping[str, tuple[float, float]]
    bins: Mapping[str, tuple[str, ...]]  # public keys of columns

    def __post_init__(self) -> None:
        """Refuse what makes no sense (raises QueryError)."""
        if not 1 <= self.rows_per_user <= _MOST_ROWS:
            raise QueryError(
                f"rows_per_user = {self.rows_per_user}: must be from 1 to {_MOST_ROWS:,}"
            )
        for option, named in (("bounds", self.bounds), ("bins", self.bins)):
            for column in named:
                self.require(option, column)
        for column, (low, high) in self.bounds.items():
            if not (low < high and math.isfinite(high - low)):
                raise QueryError(
                    f"bounds of {visible(column)} = {low:g}:{high:g}: must be finite numbers, the "
                    "lower one first"
                )
        for column, keys in self.bins.items():
            if not keys or len(set(keys)) < len(keys):
                raise QueryError(
                    f"bins of {visible(column)}: must be at least one, each there once"
                )

    def require(self, option: str, column: str) -> None:
        """Refuse a column that isn't there (raises QueryError)."""
        if column == self.user_column:
            raise QueryError(f"{option}: {visible(column)} is the column of users")
        if column not in self.columns:
            names = ", ".join(map(visible, sorted(self.columns))) or "none"
            raise QueryError(f"{option}: no column is named {column!r}; there are: {names}")

    def bounds_of(self, column: str) -> tuple[float, float]:
        """Return a column's range (raises QueryError if none was declared)."""
        if column not in self.bounds:
            raise QueryError(
                f"{visible(column)}: has no bounds, which limit what one user can change; declare "
                f"them when the ledger is made: --bounds {visible(column)}=LOW:HIGH"
            )
        return self.bounds[column]

    def as_json(self) -> str:
        """Return the declaration as the ledger keeps it."""
        return json.dumps({**asdict(self), "data": str(self.data)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Declaration:
        """Return what a ledger keeps (raises LedgerError if it isn't that)."""
        try:
            facts = json.loads(text)
            return cls(
                data=Path(facts["data"]),
                user_column=facts["user_column"],
                columns=tuple(facts["columns"]),
                rows_per_user=facts["rows_per_user"],
                excess=Excess(facts["excess"]),
                bounds={column: (low, high) for column, (low, high) in facts["bounds"].items()},
                bins={column: tuple(keys) for column, keys in facts["bins"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerError(f"the ledger's declaration can't be read: {error}") from error


def unique(option: str, keys: Sequence[str]) -> tuple[str, ...]:
    """Return public keys in NFC, as those of tables are; `QueryError` unless each is there once."""
    found = tuple(dict.fromkeys(map(normal_form, keys)))
    if not found:
        raise QueryError(f"{option}: must name at least one key")
    for key in found:
        if not key:
            raise QueryError(f"{option} = '': must be keys; empty cells are none and don't count")
        if any("\ud800" <= letter <= "\udfff" for letter in key):
            raise QueryError(f"{option} = {key!r}: must be Unicode text without lone surrogates")
    return found


_EXACT = 2.0**53  # below which floats that are whole numbers are exact
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype="u8")
Hashes = NDArray[np.uint64]


class Role(Enum):
    """The type that a column's cells are read as."""

    KEYS = auto()
    NUMBERS = auto()


@dataclass(frozen=True, slots=True)
class UserRows:
    """Rows, and whose they are."""

    # Columns without that of users: text (null if the cell is empty), or float64 (nan if it isn't a
    # number).
    table: Any
    users: IntArray  # shape (n,); a number a user
    names: Sequence[str]  # a user's name by this number

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.users)

    def chosen(self, rows: BoolArray) -> UserRows:
        """Return some of the rows."""
        return UserRows(self.table.filter(pa.array(rows)), self.users[rows], self.names)

    def with_value(self, column: str, keys: Sequence[str] | None = None) -> UserRows:
        """Return the rows with a key or a number in a column, with one of some keys if given."""
        cells = self.table.column(column)
        if pa.types.is_floating(cells.type):
            return self.chosen(~np.isnan(cells.to_numpy()))
        some = None if keys is None else pa.array(keys, cells.type)
        found = pc.is_valid(cells) if some is None else pc.is_in(cells, value_set=some)
        return self.chosen(found.to_numpy())

    def numbers(self, column: str) -> FloatArray:
        """Return the numbers of a column that was read as such."""
        found: FloatArray = self.table.column(column).to_numpy()
        return found[~np.isnan(found)]

    def keys(self, column: str) -> list[str]:
        """Return the keys of a column that was read as such."""
        found: list[str] = self.table.column(column).drop_null().to_pylist()
        return found

    def blocks(self, n_blocks: int, secret: bytes) -> list[Mapping[str, NDArray[Any]]]:
        """Return all columns in so many parts, each user's rows in one of them."""
        block = (_hashes(self.names, secret) % np.uint64(n_blocks)).astype(np.int64)[self.users]
        order = np.argsort(block, kind="stable")
        ends = np.cumsum(np.bincount(block, minlength=n_blocks))[:-1]
        parts = {
            column: np.split(self.table.column(column).to_numpy()[order], ends)
            for column in self.table.column_names
        }
        return [{column: parts[column][i] for column in parts} for i in range(n_blocks)]


def column_names(path: Path, user_column: str) -> tuple[str, ...]:
    """Return the names of a table's columns, without that of users.

    Raises `DataError` if there is no table, files differ in their columns, or none is that of
    users.
    """
    first, *others = files_of(path)
    names = _names(first)
    for file in others:
        if set(_names(file)) != set(names):
            raise DataError(f"{file}: its columns aren't those of {first}")
    if user_column not in names:
        there = ", ".join(map(visible, names))
        raise DataError(f"{path}: no column is named {user_column!r}; there are: {there}")
    return tuple(name for name in names if name != user_column)


def load(path: Path, user_column: str, roles: Mapping[str, Role]) -> UserRows:
    """Read some columns of a table, each in its role.

    Raises `DataError` if it can't be read, has no rows, or some row has no user.
    """
    parts = []
    for file in files_of(path):
        with _translate_read_errors(file):
            table = _form(file)(file, [user_column, *roles])
            table.validate(full=True)
        absent = [name for name in (user_column, *roles) if name not in table.column_names]
        if absent:
            raise DataError(f"{file}: no column is named {absent[0]!r}")
        columns = {"": _texts(file, user_column, table.column(user_column))}
        for name, role in roles.items():
            read = _texts if role is Role.KEYS else _numbers
            columns[f"={name}"] = read(file, name, table.column(name))
        empty = pc.index(pc.is_null(columns[""]), pa.scalar(True)).as_py()
        if empty >= 0:
            place = f"line {empty + 2}" if _form(file) is read_csv else f"row {empty + 1}"
            raise DataError(
                f"{file}: {place}: {visible(user_column)} is empty; must name the row's user"
            )
        parts.append(pa.table(columns))
    whole = pa.concat_tables(parts).combine_chunks()
    if not whole.num_rows:
        raise DataError(f"{path}: has no rows")
    users = whole.column("").combine_chunks().dictionary_encode()
    numbers = users.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    table = whole.select([f"={name}" for name in roles]).rename_columns(list(roles))
    return UserRows(table, numbers, users.dictionary.to_pylist())


def limited(rows: UserRows, most: int, secret: bytes) -> UserRows:
    """Return at most so many rows of each user, chosen by a keyed hash.

    Notes
    -----
    Whether a row can count follows from its own cells, and which rows of a user are chosen from the
    secret, the user's name, and how many rows of this user can count. So of any two tables that
    differ by one user's rows the same rows of all others are returned, and at most `most` of that
    user's, in one of them: the sensitivity is that of `most` rows, whatever can count.
    """
    numbers = np.bincount(rows.users, minlength=len(rows.names))
    if not len(rows) or numbers.max() <= most:
        return rows
    order = np.argsort(rows.users, kind="stable")
    before = np.cumsum(numbers) - numbers
    rank = np.empty(len(order), dtype=np.int64)  # of a row among the user's own
    rank[order] = np.arange(len(order)) - before[rows.users[order]]
    hashes = _mixed(_hashes(rows.names, secret)[rows.users], rank)
    drawn = np.lexsort((hashes, rows.users))
    place = np.empty_like(rank)
    place[drawn] = np.arange(len(drawn)) - before[rows.users[drawn]]
    return rows.chosen(place < most)


def refuse_excess(rows: UserRows, declared: Declaration) -> None:
    """Refuse rows beyond those that a user may have, if that was declared (raises DataError)."""
    most = int(np.bincount(rows.users).max(initial=0))
    if declared.excess is Excess.REFUSE and most > declared.rows_per_user:
        raise DataError(
            f"{declared.data}: some user has {most:,} rows; at most {declared.rows_per_user:,} "
            "were declared, and excess is refused"
        )


def state(path: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return what changes when a file does: each file's name, number, size and time."""
    found = []
    for file in files_of(path):
        facts = file.stat()
        found.append((str(file), facts.st_ino, facts.st_size, facts.st_mtime_ns))
    return tuple(found)


def digest(path: Path) -> str:
    """Return the SHA-256 of a table's files, with their names inside of a directory.

    It must not be published: whoever has it can test guesses of the whole table.
    """
    hashing = hashlib.sha256()
    for file in files_of(path):
        name = file.relative_to(path).as_posix() if file != path else ""
        hashing.update(f"{len(name.encode())}:{name}:{file.stat().st_size}:".encode())
        with file.open("rb") as content:
            while block := content.read(1 << 20):
                hashing.update(block)
    return hashing.hexdigest()


def files_of(path: Path) -> list[Path]:
    """Return a table's files, all of one form, by name; not those that begin with a dot or "_"."""
    if not path.exists():
        raise DataError(f"{path}: no such file or directory")
    if not path.is_dir():
        _form(path)
        return [path]

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: can't be read: {error.strerror}") from error

    found = []
    for folder, folders, names in os.walk(path, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        if any((Path(folder) / name).is_symlink() for name in folders):
            raise DataError(f"{path}: links to folders aren't followed; write the files there")
        if any("=" in name for name in folders):
            raise DataError(
                f"{path}: columns in names of folders aren't read; write them into the files"
            )
        found += [Path(folder) / name for name in names if not name.startswith((".", "_"))]
    if not found:
        raise DataError(f"{path}: has no files")
    if len({_form(file) for file in found}) > 1:
        raise DataError(f"{path}: must hold files of one form, not of several")
    return sorted(found)


_Form = Callable[[Path, Sequence[str] | None], Any]
"""Reads those of some columns that a file has; of all columns, if none are named, perhaps no rows.
"""


def _form(path: Path) -> _Form:
    for suffix, form in _FORMS.items():
        if path.name.endswith(suffix):
            return form
    raise DataError(f"{path}: must end in {', '.join(_FORMS)}")


def _names(file: Path) -> list[str]:
    with _translate_read_errors(file):
        names = list(_form(file)(file, None).column_names)
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise DataError(f"{file}: several columns are named {min(repeated)!r}")
    return names


@contextlib.contextmanager
def _translate_read_errors(file: Path) -> Iterator[None]:
    """Report an unreadable file and the reason, without the values that pyarrow quotes."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeError) as error:
        reason = f"not a whole {file.suffix} file ({type(error).__name__})"
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        elif not file.stat().st_size:
            reason = "it is empty"
        elif isinstance(error, UnicodeError) or "UTF8" in str(error):
            reason = "it holds text that isn't UTF-8"
        raise DataError(f"{file}: can't be read: {reason}") from error


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Any:
    with parquet.ParquetFile(path) as file:
        if columns is None:
            return file.schema_arrow.empty_table()
        there = set(file.schema_arrow.names)
        return file.read(columns=[name for name in columns if name in there])


def _read_arrow(path: Path, columns: Sequence[str] | None) -> Any:
    with pa.memory_map(str(path)) as source:
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
    if columns is None:
        return table
    return table.select([name for name in columns if name in table.column_names])


_FORMS: dict[str, _Form] = {
    ".parquet": _read_parquet,
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def _texts(file: Path, name: str, column: Any) -> Any:
    """Return cells as text in NFC; null for empty ones and nan. A whole number's has no point."""
    column, kind = _plain(column)
    if pa.types.is_floating(kind):
        column = pa.chunked_array([[_number_text(x) for x in column.to_pylist()]], pa.string())
    try:
        texts = column.cast(pa.large_string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise DataError(f"{file}: {visible(name)} can't be asked for: it holds {kind}") from error
    if not pc.all(pc.string_is_ascii(texts)).as_py():
        # Use the clients' function: pyarrow's is of another version of Unicode.
        encoded = texts.combine_chunks().dictionary_encode()
        forms = [normal_form(text) for text in encoded.dictionary.to_pylist()]
        texts = pa.chunked_array([pa.array(forms, pa.large_string()).take(encoded.indices)])
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)


def _number_text(value: float | None) -> str | None:
    if value is None or math.isnan(value):
        return None
    return str(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)


def _numbers(file: Path, name: str, column: Any) -> Any:
    """Return cells as float64; nan for text that isn't a number."""
    column, kind = _plain(column)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if numeric or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        found = column.cast(pa.float64(), safe=False).to_numpy()
    elif pa.types.is_null(kind) or any(is_text(kind) for is_text in _TEXTS):
        found = np.array([_parsed(text) for text in column.to_pylist()], dtype=np.float64)
    else:  # true for all rows of the file, so about no one
        raise DataError(f"{file}: {visible(name)} can't be read as numbers: it holds {kind}")
    return pa.array(found, pa.float64(), from_pandas=False)


def _parsed(text: str | None) -> float:
    try:
        return math.nan if text is None else float(text)
    except ValueError:
        return math.nan


def _plain(column: Any) -> tuple[Any, Any]:
    if pa.types.is_dictionary(column.type):
        kind = column.type.value_type
        chunks = [chunk.dictionary.take(chunk.indices) for chunk in column.chunks]
        column = pa.chunked_array(chunks, kind)
    return column, column.type


def _hashes(names: Sequence[str], secret: bytes) -> Hashes:
    hashed = b"".join(
        hashlib.blake2b(name.encode("utf-8"), key=secret, digest_size=8).digest() for name in names
    )
    return np.frombuffer(hashed, dtype="<u8").astype(np.uint64)


def _mixed(hashes: Hashes, rank: IntArray) -> Hashes:
    golden, first, second = _MULTIPLIERS
    mixed = hashes + rank.astype(np.uint64) * golden
    mixed = (mixed ^ (mixed >> np.uint64(30))) * first
    mixed = (mixed ^ (mixed >> np.uint64(27))) * second
    return cast("Hashes", mixed ^ (mixed >> np.uint64(31)))
