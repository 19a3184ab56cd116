"""Whatever a command writes -> text that is the same in every run, and how two such texts differ.

What is left out or replaced, for good:

- the case's folder becomes FOLDER; versions of Python and of the packages that compute, VERSION;
- tokens and keys become SECRET, random ids ID, moments MOMENT, seconds that something took SECONDS;
- numbers of more than nine digits are rounded to these, and marked with ~. They may differ by a
  millionth, or as a case says: linear algebra adds up in another order on another processor. On
  the machine that made the files, `python -m golden --exact` allows for nothing;
- a page has a line per tag, a digest instead of a style sheet, and the texts alone of a drawing;
- Parquet is its schema, metadata and rows; rows of reports are sorted, for their order is random;
- a picture is its size and a digest;
- a database is its schema and numbers of rows; the tables of batch ids, which are named after the
  day, are one number.
"""

import base64
import csv
import difflib
import hashlib
import io
import math
import re
import sqlite3
import struct
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from hubbub.protocol import unpack_counts

DIGITS = 9
TOLERANCE = 1e-6
"""Relative, of numbers of more digits."""

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w])~?")
_PACKAGES = r"hubbub|numpy|scipy|python|opendp|pyarrow"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf'((?i:{_PACKAGES})"?(?::|,)? "?)\d+(?:\.\d+)+'), r"\1VERSION"),
    (re.compile(r"(version )\d+\.\d+\.\d+"), r"\1VERSION"),
    (re.compile(r"\b(hub_(?:ingest|admin))_[\w-]{40,}"), r"\1_SECRET"),
    (re.compile(r'(sha256 = ")[0-9a-f]{64}'), r"\1SECRET"),
    (re.compile(r"\b(_counts|part)-[0-9a-f]{16}\b"), r"\1-ID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"), "MOMENT"),
    (re.compile(r"\b\d+\.\d s;"), "SECONDS s;"),
)


def stable(text: str, folder: Path) -> str:
    """Return a text without what differs from run to run."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return _NUMBER.sub(_rounded, text)


def _rounded(found: re.Match[str]) -> str:
    text = found[0]
    if _digits(text) <= DIGITS or not ("." in text or "e" in text.lower()):
        return text
    return f"{float(text):.{DIGITS}g}~"


def file_text(path: Path) -> str:
    to_text = _READERS.get(path.suffix, _plain)
    return to_text(path)


def kept_name(path: Path) -> Path:
    """Return the name under which a file's text is kept."""
    name = f"{path}.txt" if path.suffix in _READERS else f"{path}"
    return Path(stable(name, Path("/nowhere")))


def _plain(path: Path) -> str:
    return path.read_bytes().decode("utf-8")


def _page(path: Path) -> str:
    text = path.read_bytes().decode("utf-8")
    text = re.sub(r"data:image/svg\+xml;base64,([\w+/=]+)", _embedded, text)
    text = re.sub(r"<style>(.*?)</style>", _style, text, flags=re.DOTALL)
    text = re.sub(r"(?<=</desc>).*?(?=</svg>)", _texts, text, flags=re.DOTALL)
    return text.replace("><", ">\n<")


def _embedded(found: re.Match[str]) -> str:
    return base64.b64decode(found[1]).decode("utf-8")


def _texts(drawing: re.Match[str]) -> str:
    return "\n" + "\n".join(re.findall(r"<text[^>]*>(.*?)</text>", drawing[0])) + "\n"


def _style(found: re.Match[str]) -> str:
    return f"<style>sha256 {hashlib.sha256(found[1].encode()).hexdigest()}</style>"


def _picture(path: Path) -> str:
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    return f"PNG, {width} x {height}, sha256 {hashlib.sha256(data).hexdigest()}\n"


def _parquet(path: Path) -> str:
    from pyarrow import parquet

    table = parquet.read_table(path, partitioning=None)
    lines = [f"{field.name}: {field.type}" for field in table.schema]
    metadata = table.schema.metadata or {}
    lines += [f"{key.decode()} = {value.decode()}" for key, value in sorted(metadata.items())]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.column_names)
    if table.column_names == ["counts"]:  # unpacked: zlib's bytes depend on its version
        kept = unpack_counts(table["counts"][0].as_py())
        numbers = (kept.counts.reports, kept.counts.bits, kept.set_bits)
        return "\n".join([*lines, "", *(str(part.tolist()) for part in numbers), ""])
    rows = [[_cell(cell) for cell in row.values()] for row in table.to_pylist()]
    are_reports = table.column_names == ["cohort", "bits"]
    writer.writerows(sorted(rows) if are_reports else rows)
    return "\n".join([*lines, "", out.getvalue()])


def _cell(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _database(path: Path) -> str:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        made = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name"
        lines, batch_ids = [], 0
        for what, name, sql in connection.execute(made).fetchall():
            rows = 0
            if what == "table":
                (rows,) = connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()  # noqa: S608
            if name.startswith("batch_ids_"):
                batch_ids += rows
                continue
            lines.append(f"{sql};")
            if what == "table":
                lines.append(f"-- {rows} rows")
    return "\n".join([*lines, f"-- {batch_ids} batch ids", ""])


_READERS: dict[str, Callable[[Path], str]] = {
    ".html": _page,
    ".png": _picture,
    ".parquet": _parquet,
    ".pq": _parquet,
    ".db": _database,
    ".svg": _page,
}
"""How files that aren't plain text become text, by suffix."""


def difference(name: str, expected: str, actual: str, tolerance: float = TOLERANCE) -> str:
    """Return how a text differs from what was expected, "" if it doesn't."""
    before, now = expected.split("\n"), actual.split("\n")
    if len(before) == len(now):
        pairs = zip(before, now, strict=True)
        now = [a if _agree(a, b, tolerance) else b for a, b in pairs]
    lines = difflib.unified_diff(before, now, f"expected {name}", f"actual {name}", "", "", 2, "")
    return "\n".join(lines)


def _agree(expected: str, actual: str, tolerance: float) -> bool:
    if expected == actual:
        return True
    if _NUMBER.split(expected) != _NUMBER.split(actual):
        return False
    pairs = zip(_NUMBER.findall(expected), _NUMBER.findall(actual), strict=True)
    return all(a == b or (_is_long(a, b) and _close(a, b, tolerance)) for a, b in pairs)


def _is_long(a: str, b: str) -> bool:
    return "~" in a + b or ("." in a + b and min(_digits(a), _digits(b)) >= DIGITS - 1)


def _digits(number: str) -> int:
    return len(number.lower().partition("e")[0].lstrip("-0.").replace(".", ""))


def _close(a: str, b: str, tolerance: float) -> bool:
    first, second = float(a.rstrip("~")), float(b.rstrip("~"))
    return math.isclose(first, second, rel_tol=tolerance)


def hide(text: str, patterns: Sequence[str]) -> str:
    """Replace what a case says differs: the group of each pattern."""
    for pattern in patterns:
        text = re.sub(pattern, _hidden, text, flags=re.MULTILINE)
    return text


def _hidden(found: re.Match[str]) -> str:
    start, end = (place - found.start() for place in found.span(1))
    return f"{found[0][:start]}HIDDEN{found[0][end:]}"
