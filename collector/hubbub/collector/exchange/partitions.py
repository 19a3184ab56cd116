"""Where exported reports lie: DIR/metric=NAME/version=N/day=YYYY-MM-DD/part-0.parquet.

The layout is Hive's, which DuckDB, Spark, pandas and others read as it is. Beside the days of a
version, `_definition.json` says how its reports were made. Invariant: an export's partition is one
file, put in place by a rename, so that readers find the old reports or the new ones, never none,
half or both.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from hubbub.collector.errors import StoreError
from hubbub.collector.store import MetricVersion
from hubbub.protocol.metrics import Metric

DEFINITION = "_definition.json"
PART = "part-0.parquet"

_PARTITION = re.compile(
    r"metric=([a-z][a-z0-9_-]{0,63})/version=([1-9][0-9]{0,9})/day=(\d{4}-\d{2}-\d{2})"
)


class ReportFileError(StoreError):
    """A file or directory of reports isn't what it should be; the message says where."""


class Partition(NamedTuple):
    """The reports of one metric, version and UTC day."""

    metric: str
    version: int
    day: dt.date

    @property
    def key(self) -> MetricVersion:
        """What its reports may be counted together with, on other days."""
        return MetricVersion(self.metric, self.version)

    @property
    def path(self) -> Path:
        """Its directory, below the export's."""
        return version_path(self.key) / f"day={self.day.isoformat()}"


class ReportFile(NamedTuple):
    """A Parquet file, and the partition that its directories name (None: they don't)."""

    path: Path
    partition: Partition | None


def version_path(key: MetricVersion) -> Path:
    """Return a version's directory, below the export's."""
    return Path(f"metric={key.metric}") / f"version={key.version}"


def partition_of(path: Path) -> Partition | None:
    """Return the partition that a file's directories name, if they name one."""
    found = _PARTITION.fullmatch("/".join(path.absolute().parent.parts[-3:]))
    if not found:
        return None
    try:
        return Partition(found[1], int(found[2]), dt.date.fromisoformat(found[3]))
    except ValueError:
        return None


def report_files(directory: Path) -> Iterator[ReportFile]:
    """Yield the Parquet files below a directory, in order, as Hive's readers see them.

    Names that begin with `_` or `.` are no data: definitions, and files still being written.
    """
    for path in sorted(directory.rglob("*.parquet")):
        if not any(part[0] in "._" for part in path.relative_to(directory).parts):
            yield ReportFile(path, partition_of(path))


def check_target(directory: Path, partitions: Iterable[Partition]) -> None:
    """Refuse to export into a directory that holds anything but an export.

    Raises
    ------
    ReportFileError
        If something in it isn't an export's, or would be read along with the partitions.
    """
    if directory.exists() and not directory.is_dir():
        raise ReportFileError(f"{directory}: is a file; expected a directory")
    for entry in sorted(directory.iterdir()) if directory.exists() else ():
        if not entry.name.startswith(("metric=", "_", ".")):
            raise ReportFileError(
                f"{directory}: holds {entry.name!r}, which is no export; expected a new or empty "
                "directory, or an earlier export's"
            )
    for partition in partitions:
        for file in report_files(directory / partition.path):
            if file.path.name != PART:
                raise ReportFileError(
                    f"{file.path}: would be read along with the exported {PART}; expected no "
                    "other Parquet files in a partition"
                )


@contextlib.contextmanager
def put_in_place(path: Path) -> Iterator[Path]:
    """Give a temporary name to write to; make it `path` if all goes well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Neither the first character nor the ending lets a reader take it for data.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield temporary
        # Or a power cut could leave the new name with nothing in it.
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_definition(directory: Path, key: MetricVersion) -> dict[str, object] | None:
    """Return how a version's reports were made, or None if there is no such file.

    Raises
    ------
    ReportFileError
        If the file is there but can't be understood.
    """
    path = directory / version_path(key) / DEFINITION
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ReportFileError(f"{path}: {error}; expected JSON") from error
    if not isinstance(found, dict):
        raise ReportFileError(f"{path}: expected a JSON object")
    return found


def write_definition(directory: Path, key: MetricVersion, definition: Mapping[str, object]) -> None:
    """Write how a version's reports were made.

    Raises
    ------
    ReportFileError
        If another definition is there: the directory is another store's export.
    """
    there = read_definition(directory, key)
    if there is not None and there != definition:
        raise _different(directory, key, there, f"the store has {_shown(definition)}")
    with put_in_place(directory / version_path(key) / DEFINITION) as temporary:
        temporary.write_text(_shown(definition) + "\n", encoding="utf-8")


def check_definition(directory: Path, metric: Metric) -> None:
    """Raise ReportFileError if a metric's reports below `directory` were made in another way."""
    key = MetricVersion(metric.name, metric.version)
    there = read_definition(directory, key)
    # Through JSON, because only then do lists and numbers compare as they were written.
    if there is not None and there != json.loads(_shown(metric.definition)):
        raise _different(directory, key, there, f"the registry has {_shown(metric.definition)}")


def _different(
    directory: Path, key: MetricVersion, there: Mapping[str, object], expected: str
) -> ReportFileError:
    path = directory / version_path(key) / DEFINITION
    return ReportFileError(f"{path}: reports were made with {_shown(there)}, but {expected}")


def _shown(definition: Mapping[str, object]) -> str:
    return json.dumps(definition, sort_keys=True)
