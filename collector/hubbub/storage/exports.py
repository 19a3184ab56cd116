"""Exported reports: DIR/metric=NAME/version=N/day=YYYY-MM-DD/part-*.parquet, written and read.

The layout is Hive's, which DuckDB, Spark, pandas and others read as it is. `_counts-*.pq`, which
they pass over, holds counts of reports that were forgotten. Next to the days of a version,
`_definition.json` says how its reports were made. Each file says in its metadata what it holds, so
that a copy is known wherever it is.

A day's `_manifest.json` lists its files: object storage has no renaming, so an export writes
files under new names and then the manifest, in one request that replaces the earlier one. Until
then the old files are the day, and from then on the new ones. What a killed export left is named
nowhere, and deleted by the next one. Days without a manifest, as other programs write them, are
what Hive's readers see there. Invariants: a file is complete before a manifest names it; a name is
never used twice; a day's reports are in a uniformly random order, so nothing shows which came
together; each day is read as one export left it, or its reading ends in an error.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
import re
import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Self

from hubbub.protocol import KeptCounts, Metric, is_slice, metric_name, record_width
from hubbub.storage.errors import MissingFileError, ReportFileError, StoreError
from hubbub.storage.locations import Address, Location, resolve
from hubbub.storage.parquet import (
    count_rows,
    read_counts_file,
    read_metadata,
    read_records,
    require_pyarrow,
    write_counts,
    write_records,
)
from hubbub.storage.reports import MetricVersion, Reader, StoredCounts, StoredRecords
from hubbub.storage.slices import SliceSizes, Where, added, pools

if TYPE_CHECKING:
    from hubbub.storage import Store
    from hubbub.storage.mixing import BulkShuffle

SCHEME = "parquet:"
"""How the address of an exported directory begins where a store's is expected."""
MANIFEST = "_manifest.json"
DEFINITION = "_definition.json"
BLOCK_BYTES = 2**22
"""About how much is shuffled at a time."""

_FORMAT = 1  # of a manifest; others are refused
_READINGS = 5  # each meets another replacement only if the file is written all the time
_AT_ONCE = 16  # manifests fetched at once: their time is that of a round trip each
_PART = re.compile(r"part-[0-9a-f]{16}\.parquet")
_COUNTS = re.compile(r"_counts-[0-9a-f]{16}\.pq")
_UNFINISHED = re.compile(rf"\.({_PART.pattern}|{_COUNTS.pattern}|_manifest\.json)\.[0-9a-f]{{16}}")
_PARTITION = re.compile(
    r"metric=([a-z][a-z0-9_-]{0,63})/version=([1-9][0-9]{0,9})/day=(\d{4}-\d\d-\d\d)"
)


class Partition(NamedTuple):
    """The reports of one metric, version and UTC day."""

    metric: str
    version: int
    day: dt.date

    @property
    def key(self) -> MetricVersion:
        """The metric and version, whose days may be counted together."""
        return MetricVersion(self.metric, self.version)

    @property
    def path(self) -> PurePosixPath:
        """Its directory, below the export's."""
        return _version_path(self.key) / f"day={self.day.isoformat()}"


class ReportFile(NamedTuple):
    """A file of reports, or of counts of forgotten ones.

    None is what isn't known: `partition` if neither the file nor its directories name one,
    `reports` and `size` without a manifest, and `definition`, the digest of how they were made.
    """

    path: Location
    partition: Partition | None
    only_counts: bool = False
    reports: int | None = None
    size: int | None = None
    definition: str | None = None
    slice: str = ""


def _version_path(key: MetricVersion) -> PurePosixPath:
    return PurePosixPath(f"metric={key.metric}", f"version={key.version}")


def partition_of(address: Address) -> Partition | None:
    """Return the partition that a file's directories name, if they name one."""
    return _parse_partition("/".join(resolve(address).parts[-4:-1]))


def _parse_partition(path: str) -> Partition | None:
    found = _PARTITION.fullmatch(path)
    try:
        return (
            Partition(found[1], int(found[2]), dt.date.fromisoformat(found[3])) if found else None
        )
    except ValueError:
        return None


def export_of(address: Address) -> Location:
    """Return the exported directory that contains a file of a partition."""
    location = resolve(address)
    if location.is_local:
        location = resolve(Path(location.path).absolute())
    return location.parent.parent.parent.parent


# Manifests: which files are a day.


class Manifest(NamedTuple):
    """The files of a day, and the digest of how their reports were made."""

    definition: str
    files: tuple[ReportFile, ...]

    def as_json(self) -> bytes:
        """Return what is written."""
        files = [
            {"name": file.path.name, "reports": file.reports, "bytes": file.size}
            | ({"slice": file.slice} if file.slice else {})
            for file in self.files
        ]
        document = {"format": _FORMAT, "definition": self.definition, "files": files}
        return json.dumps(document, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, folder: Location, data: bytes) -> Self:
        """Return the manifest of a folder that was written so, or raise ValueError."""
        document = json.loads(data)
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise ValueError(f"format: expected {_FORMAT}, which this version of hubbub reads")
        partition, files = partition_of(folder / MANIFEST), []
        try:
            definition = str(document["definition"])
            for found in document["files"]:
                name, reports, size = str(found["name"]), int(found["reports"]), int(found["bytes"])
                counts, text = _COUNTS.fullmatch(name) is not None, str(found.get("slice", ""))
                if not _needs_manifest(name) or min(reports, size) < 0:
                    raise ValueError(f"file {name!r}: expected a name and numbers of an export")
                if not is_slice(text):
                    raise ValueError(f"slice {text!r}: expected one like platform=mac")
                path = folder / name
                files.append(ReportFile(path, partition, counts, reports, size, definition, text))
        except (LookupError, TypeError) as error:
            raise ValueError(
                "expected a definition, and files with name, reports and bytes"
            ) from error
        return cls(definition, tuple(files))


def _needs_manifest(name: str) -> bool:
    return bool(_PART.fullmatch(name) or _COUNTS.fullmatch(name))


def read_manifest(folder: Location) -> Manifest | None:
    """Return the manifest of a day, or None if there is none."""
    path = folder / MANIFEST
    for attempt in itertools.count(1):
        try:
            return Manifest.from_json(folder, path.read_bytes())
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

    Raises `ReportFileError` if another export of the day took files away at the same time.
    """
    (folder / MANIFEST).write_bytes(manifest.as_json())
    named = {file.path.name for file in manifest.files}
    found = folder.entries()
    is_whole = named <= set(found)
    replaced = [
        name
        for name in found
        if (_needs_manifest(name) or _UNFINISHED.fullmatch(name)) and name not in named
    ]
    if is_whole and replaced:
        for name in replaced:
            (folder / name).remove()
        # Two exports at once may each have deleted the other's files: at least one of them sees
        # it, because each writes its manifest before it looks, and looks again after it deleted.
        is_whole = read_manifest(folder) == manifest and named <= set(folder.entries())
    if not is_whole:
        raise ReportFileError(
            f"{folder}: another export wrote this day at the same time; run one of them again, "
            "alone"
        )


# Definitions: how a version's reports were made.


def definition_digest(definition: Mapping[str, object]) -> str:
    """Return the digest by which manifests and files name a definition."""
    return hashlib.sha256(_shown(definition).encode()).hexdigest()


def _shown(definition: Mapping[str, object]) -> str:
    return json.dumps(definition, sort_keys=True)


def read_definition(directory: Location, key: MetricVersion) -> dict[str, object] | None:
    """Return how a version's reports were made, or None if there is no such file."""
    path = directory / _version_path(key) / DEFINITION
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ReportFileError(f"{path}: {error}; expected JSON") from error
    if not isinstance(found, dict):
        raise ReportFileError(f"{path}: expected a JSON object")
    return found


def _require_definition(
    directory: Location, key: MetricVersion, definition: Mapping[str, object], whose: str
) -> bool:
    """Return whether there is a definition, which must be the given one."""
    there = read_definition(directory, key)
    # Through JSON, because only then do lists and numbers compare as they were written.
    if there is not None and there != json.loads(_shown(definition)):
        raise ReportFileError(
            f"{directory / _version_path(key) / DEFINITION}: reports were made with "
            f"{_shown(there)}, but the {whose} has {_shown(definition)}"
        )
    return there is not None


def check_definition(address: Address, metric: Metric) -> None:
    """Raise ReportFileError if a metric's reports below a directory were made in another way."""
    key = MetricVersion(metric.name, metric.version)
    _require_definition(resolve(address), key, metric.definition, "registry")


def check_made_so(file: ReportFile, definition: Mapping[str, object]) -> None:
    """Raise ReportFileError if a file's reports were made in another way, as far as is known."""
    if file.definition not in {None, definition_digest(definition)}:
        raise ReportFileError(
            f"{file.path}: its reports were made in another way than {_shown(definition)}"
        )


# Finding files.


class Folder(NamedTuple):
    """A directory of report files, as it was listed: those that count if there is no manifest."""

    location: Location
    paths: tuple[Location, ...]
    has_manifest: bool

    def read(self) -> tuple[ReportFile, ...]:
        """Return the files that count, by the manifest as it is now."""
        manifest = read_manifest(self.location) if self.has_manifest else None
        return manifest.files if manifest else tuple(map(report_file, self.paths))


def report_folders(directory: Location) -> Iterator[Folder]:
    """Yield the directories, this one or below, that hold files of reports or manifests, in order.

    Names that begin with `_` or `.` are no data: definitions, and files still being written.
    """
    depth = len(directory.path.parts)
    for location, found in itertools.groupby(directory.files(), lambda file: file.parent):
        if any(part[0] in "._" for part in location.path.parts[depth:]):
            continue
        files = list(found)
        data = tuple(file for file in files if _is_foreign(file.name))
        has_manifest = any(file.name == MANIFEST for file in files)
        if data or has_manifest:
            yield Folder(location, data, has_manifest)


def _is_foreign(name: str) -> bool:
    return name.endswith(".parquet") and name[0] not in "._" and not _PART.fullmatch(name)


def report_file(path: Location) -> ReportFile:
    """Return a file by its own name, with its metadata."""
    about = read_metadata(path) if path.name.endswith((".parquet", ".pq")) else {}
    slice_ = about.get("slice", "")
    if not is_slice(slice_):
        raise ReportFileError(f"{path}: slice {slice_!r}: expected one like platform=mac")
    # Its own word first: a copy may be in another day's folder, and have another name.
    partition = _parse_partition(about.get("partition", "")) or partition_of(path)
    counts = "set_bits" in about or _COUNTS.fullmatch(path.name) is not None
    return ReportFile(path, partition, counts, definition=about.get("definition"), slice=slice_)


def report_files(address: Address) -> Iterator[ReportFile]:
    """Yield the files below a directory that count, in order: of reports, and of counts."""
    for folder in report_folders(resolve(address)):
        yield from folder.read()


# Writing.


async def plan_export(
    store: Store,
    metrics: Collection[str] = (),
    since: dt.date | None = None,
    until: dt.date | None = None,
) -> list[Partition]:
    """List the partitions of the days `since` to `until`, of some metrics or all."""
    plan = []
    for declared in await store.declared():
        if metrics and declared.metric not in metrics:
            continue
        # Stores are filled from checked registries; a name with a slash would still be fatal here.
        metric_name("store", declared.metric)
        key = MetricVersion(declared.metric, declared.version)
        plan += [
            Partition(*key[:2], day)
            for day in await store.days(key)
            if (since or day) <= day <= (until or day)
        ]
    return sorted(plan)


def _check_target(directory: Location, partitions: Iterable[Partition]) -> None:
    """Refuse to export into a directory that holds anything but an export."""
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
        for name in filter(_is_foreign, folder.entries()):
            raise ReportFileError(
                f"{folder / name}: would be read along with the exported reports; expected no "
                "other Parquet files in a partition"
            )


async def export_partitions(
    store: Store,
    address: Address,
    plan: Collection[Partition],
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    block_bytes: int = BLOCK_BYTES,
) -> AsyncIterator[ReportFile]:
    """Write partitions to a new or empty directory, or an earlier export's; yield their files.

    A file is yielded once it counts. If an error ends the export, the day that was being written
    counts as before. Raises `StoreError` if the store can't be read, the storage refuses, or
    pyarrow is missing; as ReportFileError if the directory holds something else.
    """
    # Reading an export needs no database's library.
    from hubbub.storage.mixing import BulkShuffle  # noqa: PLC0415

    require_pyarrow()
    directory = resolve(address)
    _check_target(directory, plan)
    expected = [await store.count(it.key, it.day, it.day) for it in plan]
    done = 0
    declared = {MetricVersion(it.metric, it.version): it for it in await store.declared()}
    spool = Path(directory.path) if directory.is_local else None
    for partition, reports in zip(plan, expected, strict=True):
        definition = declared[partition.key].definition
        if not _require_definition(directory, partition.key, definition, "store"):
            path = directory / _version_path(partition.key) / DEFINITION
            path.write_bytes(_shown(definition).encode() + b"\n")
        width, digest = record_width(int(str(definition["k"]))), definition_digest(definition)
        folder = directory / partition.path
        sizes = (await store.slices(partition.key, partition.day, partition.day)).get(partition.day)
        goes = pools(declared[partition.key], sizes or {})
        pooled = set(goes.values())
        shuffles: dict[str, BulkShuffle] = {}
        kept: dict[str, KeptCounts] = {}
        files: list[ReportFile] = []
        with ExitStack() as stack:
            of_day = store.contents(partition.key, partition.day, partition.day)
            async with aclosing(of_day) as contents:
                async for stored in contents:
                    # Upkeep may have moved it into its pool since.
                    text = stored.slice if stored.slice in pooled else ""
                    text = goes.get(stored.slice, text)
                    if isinstance(stored, StoredCounts):
                        kept[text] = kept[text] + stored.kept if text in kept else stored.kept
                        done += stored.kept.total
                    else:
                        if text not in shuffles:
                            shuffle = BulkShuffle(width, reports, spool, block_bytes)
                            shuffles[text] = stack.enter_context(shuffle)
                        shuffles[text].add(stored.records)
                        done += len(stored.records) // width
                    progress(done, sum(expected))
            for text in sorted(shuffles) if shuffles or kept else [""]:
                path, about = folder / _new_name("part-{}.parquet"), _about(partition, digest, text)
                blocks = shuffles[text].blocks() if shuffles else iter(())
                written = write_records(path, width, blocks, about)
                size = path.size() or 0
                files.append(ReportFile(path, partition, False, written, size, digest, text))
        for text, counts in sorted(kept.items()):
            path = folder / _new_name("_counts-{}.pq")
            write_counts(path, counts, _about(partition, digest, text))
            size = path.size() or 0
            files.append(ReportFile(path, partition, True, counts.total, size, digest, text))
        # One step for both: what has become counts since an earlier export is never there twice.
        commit(folder, Manifest(digest, tuple(files)))
        for file in files:
            yield file


def _new_name(form: str) -> str:
    return form.format(secrets.token_hex(8))


def _about(partition: Partition, definition: str, slice_: str) -> dict[str, str]:
    return {"partition": str(partition.path), "definition": definition, "slice": slice_}


# Reading.


class ParquetReader(Reader):
    """An exported directory, read as the decoder reads a store.

    It is listed once. A day that is exported again meanwhile is read as it was or as it is then; if
    it changes while it is being read, that ends in an error.

    Raises `StoreError` if there is no such directory, or no pyarrow to read it.
    """

    def __init__(self, directory: Address) -> None:
        self.where: Where | None = None
        self._directory = resolve(directory)
        self._listed: dict[str, dict[Partition, Folder]] = {}
        self._read: dict[Partition, tuple[ReportFile, ...]] = {}
        self._definitions: dict[MetricVersion, Mapping[str, object]] = {}
        require_pyarrow()
        if not self._directory.is_folder():
            raise StoreError(
                f"store '{SCHEME}{directory}': no such directory; expected one that "
                "hubbub-collector export made"
            )

    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's reports were made with other parameters."""
        check_definition(self._directory, metric)
        # Manifests must agree, even if the version's own file was lost.
        self._definitions[MetricVersion(metric.name, metric.version)] = metric.definition

    async def contents(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncGenerator[StoredRecords | StoredCounts, None]:
        """Yield records, end to end, and counts, days `since` to `until` included."""
        for partition in self._days(key, since, until):
            has_begun = False
            for attempt in itertools.count():
                files = self._files(partition)
                try:
                    for stored in self._contents(partition, files):
                        has_begun = True
                        yield stored
                    break
                except MissingFileError as error:
                    # Exported again since its manifest was read: if nothing of it was used, the new
                    # one is as good.
                    del self._read[partition]
                    if has_begun or attempt or self._files(partition) == files:
                        raise deleted_meanwhile(error) from error

    async def count(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> int:
        """Return the number of reports, kept or counted, days `since` to `until` included."""
        return sum(map(_reports, self.files(key, since, until)))

    async def last_counted(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> dt.date | None:
        """Return the last of the days `since` to `until` with counts of forgotten reports."""
        found = self.files(key, since, until)
        days = (file.partition.day for file in found if file.only_counts and file.partition)
        return max(days, default=None)

    async def slices(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> SliceSizes:
        """Return the number of reports of each slice, whichever this reads, by day."""
        days = self._days(key, since, until)
        return added(
            (day.day, file.slice, _reports(file)) for day in days for file in self._all_files(day)
        )

    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which there are reports, or counts of them."""
        return sorted({partition.version for partition in self._folders(metric)})

    async def days(self, key: MetricVersion) -> list[dt.date]:
        """Return the UTC days on which there are reports, or counts of them."""
        days = self._days(key, None, None)
        return [day.day for day in days if self.where is None or self._files(day)]

    def files(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> list[ReportFile]:
        """Return the files of the days `since` to `until` that count, by day."""
        days = self._days(key, since, until)
        if not self._directory.is_local:
            unread = [day for day in days if day not in self._read]
            with ThreadPoolExecutor(_AT_ONCE, "manifest") as pool:
                self._read.update(zip(unread, pool.map(self._all_files, unread), strict=True))
        return [file for day in days for file in self._files(day)]

    def _folders(self, metric: str) -> dict[Partition, Folder]:
        if metric not in self._listed:
            self._listed[metric] = {
                partition: folder
                for folder in report_folders(self._directory / f"metric={metric}")
                if (partition := partition_of(folder.location / MANIFEST))
            }
        return self._listed[metric]

    def _days(
        self, key: MetricVersion, since: dt.date | None, until: dt.date | None
    ) -> list[Partition]:
        return sorted(
            partition
            for partition in self._folders(key.metric)
            if partition.key == key
            and (since or partition.day) <= partition.day <= (until or partition.day)
        )

    def _files(self, partition: Partition) -> tuple[ReportFile, ...]:
        files = self._all_files(partition)
        if self.where is None:
            return files
        rows = ((partition.day, file.slice, _reports(file)) for file in files)
        chosen = self.where.chosen(added(rows))
        return tuple(file for file in files if (partition.day, file.slice) in chosen)

    def _all_files(self, partition: Partition) -> tuple[ReportFile, ...]:
        if partition not in self._read:
            files = self._folders(partition.metric)[partition].read()
            definition = self._definition(partition.key)
            for file in files:
                if file.partition != partition:
                    own = file.partition and file.partition.path
                    raise ReportFileError(f"{file.path}: its reports are of {own}")
                if definition:
                    check_made_so(file, definition)
            self._read[partition] = files
        return self._read[partition]

    def _definition(self, key: MetricVersion) -> Mapping[str, object]:
        if key not in self._definitions:
            self._definitions[key] = read_definition(self._directory, key) or {}
        return self._definitions[key]

    def _contents(
        self, partition: Partition, files: Iterable[ReportFile]
    ) -> Iterator[StoredRecords | StoredCounts]:
        k = self._definition(partition.key).get("k")
        for file in files:
            found = 0
            if file.only_counts:
                kept = read_counts_file(file.path)
                found = kept.total
                yield StoredCounts(partition.day, kept, file.slice)
            else:
                for records in read_records(file.path, k if isinstance(k, int) else None):
                    found += records.reports
                    yield StoredRecords(partition.day, records.data, file.slice)
            require_reports(file, found)


def require_reports(file: ReportFile, found: int) -> None:
    """Raise ReportFileError if a file holds another number of reports than its manifest says."""
    if file.reports not in {None, found}:
        raise ReportFileError(f"{file.path}: {found:,} reports; its manifest says {file.reports:,}")


def _reports(file: ReportFile) -> int:
    return count_rows(file.path) if file.reports is None else file.reports


def deleted_meanwhile(error: MissingFileError) -> MissingFileError:
    """Return the error of a file that was there when its folder was listed."""
    return MissingFileError(
        f"{error}; it was deleted while it was read, as by another export of its day: run this "
        "again"
    )
