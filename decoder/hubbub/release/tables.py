"""Files -> rows of users, at most so many each.

Which rows of a user count, and which block or half a user is in, follows from a keyed hash of the
user's name and the order of the user's own rows alone. Invariant: adding or removing a user changes
nothing of what is kept of others.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet

from hubbub.decoder.arrays import BoolArray, FloatArray, IntArray
from hubbub.release.errors import DataError, QueryError

NUMBERS, WHOLE, BOOLEANS, TEXT, DATES = "numbers", "whole numbers", "booleans", "text", "dates"
"""What a column holds; others hold what can't be asked for."""
_NUMERIC = (NUMBERS, WHOLE, BOOLEANS)
_KEYS = (WHOLE, BOOLEANS, TEXT, DATES)
_USERS = (WHOLE, TEXT)
_HALVES = b"half"
_WIDER = {"int64": "double", "null": "int64"}  # what a column of a CSV file is tried as next
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype="u8")
Hashes = NDArray[np.uint64]
Reader = Callable[[Path, str, Sequence[str] | None], Any]


@dataclass(frozen=True, slots=True)
class UserRows:
    """Rows, and whose they are.

    Attributes
    ----------
    table : pyarrow.Table
        Columns without that of users.
    users : int64 array, shape (n,)
        A number a user.
    names : tuple of str
        A user's name by this number.
    """

    table: Any
    users: IntArray
    names: Sequence[str]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.users)

    def chosen(self, rows: BoolArray) -> UserRows:
        """Return some of the rows."""
        return UserRows(self.table.filter(pa.array(rows)), self.users[rows], self.names)

    def numbers(self, column: str) -> FloatArray:
        """Return a column's values, without those that are null or no number."""
        values = _cast(self.table.column(column), pa.float64())
        found: FloatArray = values.to_numpy(zero_copy_only=False)  # null is nan
        return found[~np.isnan(found)]

    def keys(self, column: str) -> list[str]:
        """Return a column's values as text, without those that are null."""
        found: list[str] = _cast(self.table.column(column), pa.string()).drop_null().to_pylist()
        return found

    def present(self, column: str) -> int:
        """Return in how many rows a column isn't null."""
        return len(self) - int(self.table.column(column).null_count)

    def halves(self, secret: bytes) -> tuple[UserRows, UserRows]:
        """Return the rows of about half of the users, and those of the others."""
        first = (_hashes(self.names, secret + _HALVES) % np.uint64(2) == 0)[self.users]
        return self.chosen(first), self.chosen(~first)

    def blocks(
        self, n_blocks: int, columns: Sequence[str], secret: bytes
    ) -> list[Mapping[str, NDArray[Any]]]:
        """Return columns in so many parts, each user's rows in one of them.

        Numbers are float64 (nan for null), everything else is text (None for null).
        """
        block = (_hashes(self.names, secret) % np.uint64(n_blocks)).astype(np.int64)[self.users]
        order = np.argsort(block, kind="stable")
        ends = np.cumsum(np.bincount(block, minlength=n_blocks))[:-1]
        arrays = {}
        for column in columns:
            values = self.table.column(column)
            numeric = _holds(values.type) in _NUMERIC
            array = _cast(values, pa.float64() if numeric else pa.string())
            arrays[column] = np.split(array.to_numpy(zero_copy_only=False)[order], ends)
        return [{column: arrays[column][i] for column in columns} for i in range(n_blocks)]


def describe(path: Path, user_column: str) -> dict[str, str]:
    """Return what the columns of a table hold, without that of users.

    Raises
    ------
    DataError
        If there is no table, it has no rows, or none of its columns is that of users.
    """
    table = _read(path, user_column, None)
    if user_column not in table.column_names:
        names = ", ".join(table.column_names)
        raise DataError(f"{path}: no column is named {user_column!r}; there are: {names}")
    if not table.num_rows:
        raise DataError(f"{path}: has no rows")
    _user_names(path, user_column, table)
    held = {field.name: _holds(field.type) for field in table.schema}
    return {name: kind for name, kind in held.items() if name != user_column}


def load(path: Path, user_column: str, columns: Iterable[str]) -> UserRows:
    """Read some columns of a table (raises DataError)."""
    wanted = list(dict.fromkeys(columns))
    table = _read(path, user_column, [user_column, *wanted])
    missing = [name for name in [user_column, *wanted] if name not in table.column_names]
    if missing:
        raise DataError(f"{path}: no column is named {missing[0]!r}")
    encoded = _user_names(path, user_column, table)
    users = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return UserRows(table.select(wanted), users, encoded.dictionary.to_pylist())


def limited(rows: UserRows, most: int, secret: bytes) -> UserRows:
    """Return at most so many rows of each user, chosen by a keyed hash."""
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


def most_rows(rows: UserRows) -> int:
    """Return how many rows the user with the most has."""
    return int(np.bincount(rows.users).max()) if len(rows) else 0


def require_kind(option: str, column: str, held: str, *, numeric: bool) -> None:
    """Refuse a column that holds neither numbers nor keys, as asked (raises QueryError)."""
    wanted = _NUMERIC if numeric else _KEYS
    if held not in wanted:
        some = ", ".join(wanted[:-1])
        raise QueryError(f"{option}: {column} must hold {some} or {wanted[-1]}; it holds {held}")


def is_askable(held: str) -> bool:
    """Whether a column holds numbers or keys, and not lists or nothing but nulls."""
    return held in _NUMERIC or held in _KEYS


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
    """Return a table's files in the order of their names.

    Raises
    ------
    DataError
        If there are none, or they aren't all of one form that can be read.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or directory")
    if not path.is_dir():
        _reader(path)
        return [path]
    found = sorted(
        Path(folder) / name
        for folder, _, names in os.walk(path)
        for name in names
        if not name.startswith((".", "_"))
    )
    if not found:
        raise DataError(f"{path}: has no files")
    readers = {_reader(file) for file in found}
    if len(readers) > 1:
        raise DataError(f"{path}: must hold files of one form, not of several")
    return found


def _reader(path: Path) -> Reader:
    for suffix, reader in _READERS.items():
        if path.name.endswith(suffix):
            return reader
    raise DataError(f"{path}: must end in {', '.join(_READERS)}")


def _read(path: Path, user_column: str, columns: Sequence[str] | None) -> Any:
    tables = []
    for file in files_of(path):
        try:
            table = _reader(file)(file, user_column, columns)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(f"{file}: can't be read: {_fault(file, error)}") from error
        repeated = {name for name in table.column_names if table.column_names.count(name) > 1}
        if repeated:
            raise DataError(f"{file}: several columns are named {min(repeated)!r}")
        tables.append(table)
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
        whole.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        faults = _differing(tables)
        if not faults:
            raise DataError(f"{path}: holds text that isn't UTF-8") from error
        raise DataError(f"{path}: its files differ in what {faults} holds") from error
    return whole


def _fault(file: Path, error: Exception) -> str:
    """Return why a file can't be read, without what pyarrow quotes of its values."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if not file.stat().st_size:
        return "it is empty"
    wrong_line = re.search(r"(Row #\d+: )?Expected \d+ columns, got \d+", str(error))
    return (
        wrong_line[0] if wrong_line else f"not a whole {file.suffix} file ({type(error).__name__})"
    )


def _differing(tables: Sequence[Any]) -> str:
    """Return the columns of which files hold different types."""
    types: dict[str, set[str]] = {}
    for table in tables:
        for field in table.schema:
            types.setdefault(field.name, set()).add(str(field.type))
    return ", ".join(sorted(name for name, each in types.items() if len(each) > 1))


def _read_parquet(path: Path, _user_column: str, columns: Sequence[str] | None) -> Any:
    with parquet.ParquetFile(path) as file:
        wanted = None
        if columns is not None:
            wanted = [name for name in columns if name in file.schema_arrow.names]
        return file.read(columns=wanted)


def _read_arrow(path: Path, _user_column: str, columns: Sequence[str] | None) -> Any:
    with pa.memory_map(str(path)) as source:
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
    if columns is None:
        return table
    return table.select([name for name in columns if name in table.column_names])


def _read_csv(path: Path, user_column: str, columns: Sequence[str] | None) -> Any:
    try:
        return _read_csv_columns(path, user_column, columns)
    except pa.ArrowInvalid:
        csv.read_csv(path, csv.ReadOptions(use_threads=False))  # which tells the row
        raise


def _read_csv_columns(path: Path, user_column: str, columns: Sequence[str] | None) -> Any:
    """Read a CSV file; what is no number somewhere is text everywhere in its column."""
    types: dict[str, Any] = {user_column: pa.string()}
    with csv.open_csv(path) as reader:
        names = reader.schema.names
    wanted = None if columns is None else [name for name in columns if name in names]
    while True:
        convert = csv.ConvertOptions(column_types=types, include_columns=wanted or None)
        try:
            return csv.read_csv(path, convert_options=convert)
        except pa.ArrowInvalid as error:
            fault = re.search(r"In CSV column #(\d+): CSV conversion error to (\w+)", str(error))
            if fault is None or types.get(names[int(fault[1])]) == pa.string():
                raise
            types[names[int(fault[1])]] = pa.type_for_alias(_WIDER.get(fault[2], "string"))


_READERS: dict[str, Reader] = {
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".csv.gz": _read_csv,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}


def _holds(kind: Any) -> str:
    """Return what a type of pyarrow is, in words."""
    if pa.types.is_dictionary(kind):
        return _holds(kind.value_type)
    if pa.types.is_boolean(kind):
        return BOOLEANS
    if pa.types.is_integer(kind):
        return WHOLE
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return NUMBERS
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return TEXT
    if pa.types.is_date(kind):
        return DATES
    return "nothing but nulls" if pa.types.is_null(kind) else f"{kind}"


def _user_names(path: Path, user_column: str, table: Any) -> Any:
    """Return the users as a dictionary of names and a number a row."""
    users = table.column(user_column)
    if _holds(users.type) not in _USERS:
        raise DataError(
            f"{path}: {user_column} must hold text or whole numbers; it holds {_holds(users.type)}"
        )
    users = _cast(users, pa.large_string()).combine_chunks()
    absent = pc.fill_null(pc.equal(users, ""), True)
    place = pc.index(absent, pa.scalar(True)).as_py()
    if place >= 0:
        raise DataError(
            f"{path}: {user_column} must name a user in every row; row {place + 1} has none"
        )
    return users.dictionary_encode()


def _cast(column: Any, kind: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_boolean(column.type) and kind == pa.float64():
        column = column.cast(pa.int8())
    return column.cast(kind, safe=False)


def _hashes(names: Sequence[str], secret: bytes) -> Hashes:
    """Return a keyed hash of each name."""
    hashed = b"".join(
        hashlib.blake2b(name.encode("utf-8"), key=secret, digest_size=8).digest() for name in names
    )
    return np.frombuffer(hashed, dtype="<u8").astype(np.uint64)


def _mixed(hashes: Hashes, rank: IntArray) -> Hashes:
    """Return a hash for each of a user's rows (the finalizer of SplitMix64, Steele et al. 2014)."""
    golden, first, second = _MULTIPLIERS
    mixed = hashes + rank.astype(np.uint64) * golden
    mixed = (mixed ^ (mixed >> np.uint64(30))) * first
    mixed = (mixed ^ (mixed >> np.uint64(27))) * second
    return cast("Hashes", mixed ^ (mixed >> np.uint64(31)))
