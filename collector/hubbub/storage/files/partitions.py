"""Where exported reports lie: DIR/metric=NAME/version=N/day=YYYY-MM-DD/part-*.parquet.

Beside it, or in its place, lie the counts of reports that were forgotten: `_counts-*.pq`. The
layout is Hive's, which DuckDB, Spark, pandas and others read as it is. Beside the days of a
version, `_definition.json` says how its reports were made. Each file says what it is of, so that a
copy is known wherever it lies.

Which files are a day its `_manifest.json` says: object storage has no renaming, so an export writes
files under new names and then the manifest, in one request that replaces the earlier one. Until
then the old files are the day, and from then on the new ones. What a killed export left is named
nowhere, and deleted by the next one. Days without a manifest, as other programs write them, are
what Hive's readers see there. Invariants: a file is complete before a manifest names it; a name is
never used twice.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Self

from hubbub.protocol.dimensions import is_slice
from hubbub.protocol.metrics import Metric
from hubbub.storage import MetricVersion
from hubbub.storage.errors import ReportFileError
from hubbub.storage.files.locations import Address, Location, resolve
from hubbub.storage.files.parquet import DEFINITION, read_metadata

MANIFEST = "_manifest.json"
"""Hive's readers pass over what begins with `_`."""

_FORMAT = 1  # of a manifest; others are refused
_READINGS = 5  # each meets another replacement only if the file is written all the time
_PART = re.compile(r"part-[0-9a-f]{16}\.parquet")
_COUNTS = re.compile(r"_counts-[0-9a-f]{16}\.pq")
_UNFINISHED = re.compile(
    r"\.(part-[0-9a-f]{16}\.parquet|_counts-[0-9a-f]{16}\.pq|_manifest\.json)\.[0-9a-f]{16}"
)


class FileNames:
    """The names of an export's files of one day.

    Attributes
    ----------
    part, counts : str
        Of the reports, and of the counts of forgotten ones.
    """

    def __init__(self) -> None:
        unique = secrets.token_hex(8)
        self.part, self.counts = f"part-{unique}.parquet", f"_counts-{unique}.pq"


def is_part(name: str) -> bool:
    """Tell whether an export gave a file of reports this name."""
    return _PART.fullmatch(name) is not None


def is_counts(name: str) -> bool:
    """Tell whether an export gave a file of counts this name."""
    return _COUNTS.fullmatch(name) is not None


def needs_manifest(name: str) -> bool:
    """Tell whether a file counts only if a manifest names it."""
    return is_part(name) or is_counts(name)


def definition_digest(definition: Mapping[str, object]) -> str:
    """Return what stands in a manifest for the way in which its reports were made."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A file that a manifest names.

    Attributes
    ----------
    name : str
    reports : int
        How many reports it holds, or holds the counts of.
    size : int
        Its bytes.
    slice : str
        That of its reports.
    """

    name: str
    reports: int
    size: int
    slice: str = ""

    @property
    def only_counts(self) -> bool:
        """Whether it holds counts of reports that were forgotten."""
        return is_counts(self.name)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What counts of a day.

    Attributes
    ----------
    definition : str
        The digest of how the reports were made.
    files : tuple of CommittedFile
    """

    definition: str
    files: tuple[CommittedFile, ...]

    def as_json(self) -> bytes:
        """Return what is written."""
        files = [
            {"name": file.name, "reports": file.reports, "bytes": file.size}
            | ({"slice": file.slice} if file.slice else {})
            for file in self.files
        ]
        document = {"format": _FORMAT, "definition": self.definition, "files": files}
        return json.dumps(document, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Return what was written.

        Raises
        ------
        ValueError
            If it is anything else.
        """
        document = json.loads(data)
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise ValueError(f"format: expected {_FORMAT}, which this version of hubbub reads")
        try:
            files = tuple(
                CommittedFile(
                    str(file["name"]),
                    int(file["reports"]),
                    int(file["bytes"]),
                    str(file.get("slice", "")),
                )
                for file in document["files"]
            )
            found = cls(str(document["definition"]), files)
        except (LookupError, TypeError) as error:
            raise ValueError(
                "expected a definition, and files with name, reports and bytes"
            ) from error
        for file in files:
            if not needs_manifest(file.name) or min(file.reports, file.size) < 0:
                raise ValueError(f"file {file.name!r}: expected a name and numbers of an export")
            if not is_slice(file.slice):
                raise ValueError(f"slice {file.slice!r}: expected one like platform=mac")
        return found


def read_manifest(folder: Location) -> Manifest | None:
    """Return the manifest of a day, or None if there is none.

    Raises
    ------
    ReportFileError
        If it can't be understood.
    StorageError
        If the storage fails.
    """
    path = folder / MANIFEST
    for attempt in itertools.count(1):
        try:
            return Manifest.from_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            # Pyarrow asks for an object's length before its bytes: one that is replaced in between
            # is cut off, or followed by rubbish.
            if path.is_local or attempt == _READINGS:
                raise ReportFileError(f"{path}: {error}") from error
    raise AssertionError


def commit(folder: Location, manifest: Manifest) -> None:
    """Make a manifest's files the day, and delete what others there are of it.

    Raises
    ------
    ReportFileError
        If another export of the day ran at the same time, and took files away.
    StorageError, OSError
        If the storage or the disk refuses.
    """
    (folder / MANIFEST).write_bytes(manifest.as_json())
    named = {file.name for file in manifest.files}
    found = folder.entries()
    _check_there(folder, named, found)
    replaced = [name for name in found if _is_replaced(name, named)]
    for name in replaced:
        (folder / name).remove()
    # Of two exports at once each may have deleted the other's files: at least one of them sees it,
    # because each writes its manifest before it looks, and looks again after it has deleted.
    if replaced and read_manifest(folder) == manifest:
        _check_there(folder, named, folder.entries())
    elif replaced:
        raise _overtaken(folder)


def _is_replaced(name: str, named: Collection[str]) -> bool:
    is_ours = needs_manifest(name) or _UNFINISHED.fullmatch(name)
    return bool(is_ours) and name not in named


def _check_there(folder: Location, named: Collection[str], found: Collection[str]) -> None:
    if not set(named) <= set(found):
        raise _overtaken(folder)


def _overtaken(folder: Location) -> ReportFileError:
    return ReportFileError(
        f"{folder}: another export wrote this day at the same time; run one of them again, alone"
    )


_PARTITION = re.compile(
    r"metric=([a-z][a-z0-9_-]{0,63})/version=([1-9][0-9]{0,9})/day=(\d{4}-\d{2}-\d{2})"
)


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
    def path(self) -> PurePosixPath:
        """Its directory, below the export's."""
        return version_path(self.key) / f"day={self.day.isoformat()}"


class ReportFile(NamedTuple):
    """A file of reports, or of counts of forgotten ones.

    Attributes
    ----------
    path : Location
    partition : Partition, optional
        The one that the file itself or its directories name; None if neither does.
    only_counts : bool
        Whether it holds counts.
    reports : int, optional
        How many reports its manifest says; None if there is no manifest.
    definition : str, optional
        The digest of how they were made.
    slice : str
        What the reports say of the app.
    """

    path: Location
    partition: Partition | None
    only_counts: bool = False
    reports: int | None = None
    definition: str | None = None
    slice: str = ""


class Folder(NamedTuple):
    """A directory of report files, as it was listed.

    Attributes
    ----------
    location : Location
    files : tuple of ReportFile
        Those that count if there is no manifest.
    has_manifest : bool
    """

    location: Location
    files: tuple[ReportFile, ...]
    has_manifest: bool

    def read(self) -> tuple[ReportFile, ...]:
        """Return the files that count, by the manifest as it is now."""
        manifest = read_manifest(self.location) if self.has_manifest else None
        if manifest is None:
            return tuple(report_file(file.path) for file in self.files)
        partition = partition_of(self.location / MANIFEST)
        return tuple(
            ReportFile(
                self.location / file.name,
                partition,
                file.only_counts,
                file.reports,
                manifest.definition,
                file.slice,
            )
            for file in manifest.files
        )


def version_path(key: MetricVersion) -> PurePosixPath:
    """Return a version's directory, below the export's."""
    return PurePosixPath(f"metric={key.metric}", f"version={key.version}")


def partition_of(address: Address) -> Partition | None:
    """Return the partition that a file's directories name, if they name one."""
    return _parse_partition("/".join(resolve(address).parts[-4:-1]))


def _parse_partition(path: str) -> Partition | None:
    found = _PARTITION.fullmatch(path)
    if not found:
        return None
    try:
        return Partition(found[1], int(found[2]), dt.date.fromisoformat(found[3]))
    except ValueError:
        return None


def export_of(address: Address) -> Location:
    """Return the exported directory that a file of a partition lies in."""
    location = resolve(address)
    if location.is_local:
        location = resolve(Path(location.path).absolute())
    return location.parent.parent.parent.parent


def report_folders(directory: Location) -> Iterator[Folder]:
    """Yield the directories, this one or below, that hold files of reports or manifests, in order.

    Names that begin with `_` or `.` are no data: definitions, and files still being written.
    """
    depth = len(directory.path.parts)
    for location, files in itertools.groupby(directory.files(), lambda file: file.parent):
        if any(part[0] in "._" for part in location.path.parts[depth:]):
            continue
        names = [file.name for file in files]
        partition = partition_of(location / MANIFEST)
        found = tuple(
            ReportFile(location / name, partition)
            for name in names
            if name.endswith(".parquet") and name[0] not in "._" and not needs_manifest(name)
        )
        if found or MANIFEST in names:
            yield Folder(location, found, MANIFEST in names)


def describe_file(partition: Partition, definition: str, slice_: str) -> dict[str, str]:
    """Return what an export's file says of itself, which `report_file` reads.

    Parameters
    ----------
    partition : Partition
    definition : str
        The digest of how its reports were made.
    slice_ : str
        What they say of the app.
    """
    return {"partition": str(partition.path), "definition": definition, "slice": slice_}


def report_file(path: Location) -> ReportFile:
    """Return a file by its own name, with what it says of itself.

    Raises
    ------
    ReportFileError
        If it isn't Parquet, though its name says so, or says what can't be.
    """
    is_parquet = path.name.endswith((".parquet", ".pq"))
    about = read_metadata(path) if is_parquet else {}
    slice_ = about.get("slice", "")
    if not is_slice(slice_):
        raise ReportFileError(f"{path}: slice {slice_!r}: expected one like platform=mac")
    # Its own word first: a copy may lie in another day's folder.
    partition = _parse_partition(about.get("partition", "")) or partition_of(path)
    counts = "set_bits" in about or is_counts(path.name)  # a copy may have another name
    return ReportFile(path, partition, counts, definition=about.get("definition"), slice=slice_)


def report_files(address: Address) -> Iterator[ReportFile]:
    """Yield the files below a directory that count, in order: of reports, and of counts."""
    for folder in report_folders(resolve(address)):
        yield from folder.read()


def check_target(directory: Location, partitions: Iterable[Partition]) -> None:
    """Refuse to export into a directory that holds anything but an export.

    Raises
    ------
    ReportFileError
        If something in it isn't an export's, or would be read along with the partitions.
    """
    if directory.size() is not None:
        raise ReportFileError(f"{directory}: is a file; expected a directory")
    for name in directory.entries():
        if not name.startswith(("metric=", "_", ".")):
            raise ReportFileError(
                f"{directory}: holds {name!r}, which isn't an export; expected a new or empty "
                "directory, or an earlier export's"
            )
    for partition in partitions:
        folder = directory / partition.path
        for name in folder.entries():
            if name.endswith(".parquet") and name[0] not in "._" and not is_part(name):
                raise ReportFileError(
                    f"{folder / name}: would be read along with the exported reports; expected no "
                    "other Parquet files in a partition"
                )


def read_definition(directory: Location, key: MetricVersion) -> dict[str, object] | None:
    """Return how a version's reports were made, or None if there is no such file.

    Raises
    ------
    ReportFileError
        If the file is there but can't be understood.
    """
    path = directory / version_path(key) / DEFINITION
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ReportFileError(f"{path}: {error}; expected JSON") from error
    if not isinstance(found, dict):
        raise ReportFileError(f"{path}: expected a JSON object")
    return found


def write_definition(
    directory: Location, key: MetricVersion, definition: Mapping[str, object]
) -> None:
    """Write how a version's reports were made, unless it is there.

    Raises
    ------
    ReportFileError
        If another definition is there: the directory is another store's export.
    """
    there = read_definition(directory, key)
    if there is None:
        path = directory / version_path(key) / DEFINITION
        path.write_bytes(_shown(definition).encode() + b"\n")
    elif there != definition:
        raise _different(directory, key, there, f"the store has {_shown(definition)}")


def check_definition(address: Address, metric: Metric) -> None:
    """Raise ReportFileError if a metric's reports below a directory were made in another way."""
    key, directory = MetricVersion(metric.name, metric.version), resolve(address)
    there = read_definition(directory, key)
    # Through JSON, because only then do lists and numbers compare as they were written.
    if there is not None and there != json.loads(_shown(metric.definition)):
        raise _different(directory, key, there, f"the registry has {_shown(metric.definition)}")


def check_made_so(file: ReportFile, definition: Mapping[str, object]) -> None:
    """Raise ReportFileError if a file's reports were made in another way, as far as is known."""
    if file.definition not in {None, definition_digest(definition)}:
        raise ReportFileError(
            f"{file.path}: its reports were made in another way than {_shown(definition)}"
        )


def _different(
    directory: Location, key: MetricVersion, there: Mapping[str, object], expected: str
) -> ReportFileError:
    path = directory / version_path(key) / DEFINITION
    return ReportFileError(f"{path}: reports were made with {_shown(there)}, but {expected}")


def _shown(definition: Mapping[str, object]) -> str:
    return json.dumps(definition, sort_keys=True)
