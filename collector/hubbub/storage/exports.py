"""Exported reports: DIR/metric=NAME/version=N/day=YYYY-MM-DD/part-*.parquet, written and read.

The layout is Hive's, which DuckDB, Spark, pandas and others read as it is. `_counts-*.pq`, which
they pass over, holds counts of reports that were forgotten. Next to the days of a version,
`_definition.json` says how its reports were made. Each file says in its metadata what it holds, so
that a copy is known wherever it is.

A day's `_manifest.json` lists its files: object storage has no renaming, so an export writes
files under new names and then the manifest, in one request that replaces the earlier one. Until
then the old files are the day, and from then on the new ones. What a killed export left is named
nowhere, and deleted by the next one. Invariants: a file is complete before a manifest names it; a
name is never used twice; a day's reports are in a uniformly random order, so nothing shows which
came together; each day is read as one export left it, or its reading ends in an error.
"""

from __future__ import annotations

import datetime as dt
import hashlib
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
from typing import TYPE_CHECKING, NamedTuple, cast

from hubbub.protocol import KeptCounts, Metric, Records, is_slice, metric_name, record_width
from hubbub.storage.errors import MissingFileError, ReportFileError, StoreError
from hubbub.storage.locations import Address, Location, resolve
from hubbub.storage.parquet import (
    read_counts_file,
    read_metadata,
    read_records,
    require_pyarrow,
    write_counts,
    write_records,
)
from hubbub.storage.reports import (
    MetricVersion,
    Reader,
    SliceSizes,
    StoredCounts,
    StoredRecords,
    added,
    pools,
)
from hubbub.storage.shuffling import BulkShuffle

if TYPE_CHECKING:
    from hubbub.storage import Store

SCHEME = "parquet:"
"""How the address of an exported directory begins where a store's is expected."""
MANIFEST = "_manifest.json"
DEFINITION = "_definition.json"
BLOCK_BYTES = 2**22
"""About how much is shuffled at a time."""

_FORMAT = 1  # of a manifest; others are refused
_AT_ONCE = 16  # manifests fetched at once: their time is that of a round trip each
_DATA = r"part-[0-9a-f]{16}\.parquet|_counts-[0-9a-f]{16}\.pq"
# With the temporary names of files on a disk, as a killed export leaves them.
_WRITTEN = re.compile(rf"{_DATA}|\.({_DATA}|{MANIFEST})\.[0-9a-f]{{16}}")
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
    `reports` and `size` without a manifest, and `definition`, the digest of how they were made, if
    the file doesn't say.
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


def read_manifest(folder: Location) -> tuple[ReportFile, ...]:
    """Return the files of a day (raises `MissingFileError` if there is no manifest)."""
    path = folder / MANIFEST
    partition, files = partition_of(path), []
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != _FORMAT:
            raise ValueError(f"format: expected {_FORMAT}, which this version of hubbub reads")
        for found in document["files"]:
            name, reports, size = str(found["name"]), int(found["reports"]), int(found["bytes"])
            if not re.fullmatch(_DATA, name) or min(reports, size) < 0:
                raise ValueError(f"file {name!r}: expected a name and numbers of an export")
            text = _checked_slice(found.get("slice", ""))
            counts = name.startswith("_counts-")
            files.append(ReportFile(folder / name, partition, counts, reports, size, None, text))
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: no such file") from error
    except (LookupError, TypeError, ValueError) as error:
        raise ReportFileError(f"{path}: {error}; expected the manifest of an export") from error
    return tuple(files)


def _checked_slice(text: object) -> str:
    if not isinstance(text, str) or not is_slice(text):
        raise ValueError(f"slice {text!r}: expected one like platform=mac")
    return text


def commit(folder: Location, files: Iterable[ReportFile]) -> None:
    """Make files the day, by its manifest, and delete what others there are of it."""
    listed = [
        {"name": file.path.name, "reports": file.reports, "bytes": file.size}
        | ({"slice": file.slice} if file.slice else {})
        for file in files
    ]
    document = json.dumps({"format": _FORMAT, "files": listed}, indent=1)
    (folder / MANIFEST).write_bytes(document.encode() + b"\n")
    named = {file["name"] for file in listed}
    for name in folder.entries():
        if _WRITTEN.fullmatch(name) and name not in named:
            (folder / name).remove()


# Definitions: how a version's reports were made.


def _shown(definition: Mapping[str, object]) -> str:
    return json.dumps(definition, sort_keys=True)


def _digest(definition: Mapping[str, object]) -> str:
    return hashlib.sha256(_shown(definition).encode()).hexdigest()


def has_definition(
    directory: Location, key: MetricVersion, definition: Mapping[str, object], whose: str
) -> bool:
    """Return whether a version's definition is there; it must be the given one."""
    path = directory / _version_path(key) / DEFINITION
    try:
        there = json.loads(path.read_bytes())
    except FileNotFoundError:
        return False
    except ValueError as error:
        raise ReportFileError(f"{path}: {error}; expected JSON") from error
    # Through JSON, because only then do lists and numbers compare as they were written.
    if there != json.loads(_shown(definition)):
        raise ReportFileError(
            f"{path}: reports were made with {_shown(there)}, but the {whose} has "
            f"{_shown(definition)}"
        )
    return True


def write_definition(
    address: Address, key: MetricVersion, definition: Mapping[str, object]
) -> None:
    """Write how a version's reports are made, if that isn't there yet (raises if it differs)."""
    directory = resolve(address)
    if not has_definition(directory, key, definition, "store"):
        path = directory / _version_path(key) / DEFINITION
        path.write_bytes(_shown(definition).encode() + b"\n")


def check_definition(address: Address, metric: Metric) -> None:
    """Raise ReportFileError if a metric's reports below a directory were made in another way."""
    key = MetricVersion(metric.name, metric.version)
    has_definition(resolve(address), key, metric.definition, "registry")


def check_made_so(file: ReportFile, definition: Mapping[str, object]) -> None:
    """Raise ReportFileError if a file says that its reports were made in another way."""
    if file.definition not in {None, _digest(definition)}:
        raise ReportFileError(
            f"{file.path}: its reports were made in another way than {_shown(definition)}"
        )


# Finding files.


def report_file(path: Location) -> ReportFile:
    """Return a file by its own name, with its metadata."""
    about = read_metadata(path) if path.name.endswith((".parquet", ".pq")) else {}
    try:
        text = _checked_slice(about.get("slice", ""))
    except ValueError as error:
        raise ReportFileError(f"{path}: {error}") from error
    # Its own word first: a copy may be in another day's folder, and have another name.
    partition = _parse_partition(about.get("partition", "")) or partition_of(path)
    counts = "set_bits" in about or path.name.endswith(".pq")
    return ReportFile(path, partition, counts, definition=about.get("definition"), slice=text)


def report_files(address: Address) -> Iterator[ReportFile]:
    """Yield the files of the days below a directory, in order: of reports, and of counts."""
    for folder in _days_in(resolve(address)):
        yield from read_manifest(folder)


def _days_in(directory: Location) -> list[Location]:
    return [file.parent for file in directory.files() if file.name == MANIFEST]


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
    require_pyarrow()
    directory = resolve(address)
    if directory.size() is not None:
        raise ReportFileError(f"{directory}: is a file; expected a directory")
    for name in directory.entries():
        if not name.startswith(("metric=", "_", ".")):
            raise ReportFileError(
                f"{directory}: holds {name!r}, which isn't an export; expected a new or empty "
                "directory, or an earlier export's"
            )
    expected = [await store.count(it.key, it.day, it.day) for it in plan]
    done = 0
    declared = {MetricVersion(it.metric, it.version): it for it in await store.declared()}
    spool = Path(directory.path) if directory.is_local else None
    for key in {partition.key: None for partition in plan}:
        write_definition(directory, key, declared[key].definition)
    for partition, reports in zip(plan, expected, strict=True):
        version = declared[partition.key]
        sizes = (await store.slices(partition.key, partition.day, partition.day)).get(partition.day)
        goes = pools(version, sizes or {})
        pooled = set(goes.values())
        shuffles: dict[str, BulkShuffle] = {}
        kept: dict[str, KeptCounts] = {}
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
                            shuffle = BulkShuffle(version.width, reports, spool, block_bytes)
                            shuffles[text] = stack.enter_context(shuffle)
                        shuffles[text].add(stored.records)
                        done += len(stored.records) // version.width
                    progress(done, sum(expected))
            blocks = {text: shuffle.blocks() for text, shuffle in sorted(shuffles.items())}
            for file in write_day(directory, partition, version.definition, blocks, kept):
                yield file


def write_day(
    address: Address,
    partition: Partition,
    definition: Mapping[str, object],
    blocks: Mapping[str, Iterable[Records]],
    kept: Mapping[str, KeptCounts],
) -> list[ReportFile]:
    """Write the shuffled reports of a day, and counts of forgotten ones, by slice."""
    width, folder = record_width(int(str(definition["k"]))), resolve(address) / partition.path
    files: list[ReportFile] = []

    def new_file(form: str, text: str) -> tuple[Location, dict[str, str]]:
        about = {"partition": str(partition.path), "definition": _digest(definition), "slice": text}
        return folder / form.format(secrets.token_hex(8)), about

    for text, of_slice in blocks.items():
        path, about = new_file("part-{}.parquet", text)
        written = write_records(path, width, of_slice, about)
        files.append(ReportFile(path, partition, False, written, path.size(), slice=text))
    for text, counts in sorted(kept.items()):
        path, about = new_file("_counts-{}.pq", text)
        write_counts(path, counts, about)
        files.append(ReportFile(path, partition, True, counts.total, path.size(), slice=text))
    # One step for both: what has become counts since an earlier export is never there twice.
    commit(folder, files)
    return files


# Reading.


class ParquetReader(Reader):
    """An exported directory, read as the decoder reads a store.

    It is listed once, and each manifest is read once. If a day is exported again meanwhile, and its
    files are gone, reading it ends in an error.

    Raises `StoreError` if there is no such directory, or no pyarrow to read it.
    """

    def __init__(self, directory: Address) -> None:
        self._directory = resolve(directory)
        self._listed: dict[str, dict[Partition, Location]] = {}
        self._read: dict[Partition, tuple[ReportFile, ...]] = {}
        require_pyarrow()
        if not self._directory.is_folder():
            raise StoreError(
                f"store '{SCHEME}{directory}': no such directory; expected one that "
                "hubbub-collector export made"
            )

    async def check(self, metric: Metric) -> None:
        """Raise StoreError if this metric's reports were made with other parameters."""
        key = MetricVersion(metric.name, metric.version)
        is_there = has_definition(self._directory, key, metric.definition, "registry")
        if not is_there and metric.version in await self.versions(metric.name):
            path = self._directory / _version_path(key) / DEFINITION
            raise ReportFileError(f"{path}: no such file; expected how the reports were made")

    async def contents(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> AsyncGenerator[StoredRecords | StoredCounts, None]:
        """Yield records, end to end, and counts, days `since` to `until` included."""
        for file in self.files(key, since, until):
            day, found = _day_of(file), 0
            try:
                if file.only_counts:
                    kept = read_counts_file(file.path)
                    found = kept.total
                    yield StoredCounts(day, kept, file.slice)
                else:
                    for records in read_records(file.path):
                        found += records.reports
                        yield StoredRecords(day, records.data, file.slice)
            except MissingFileError as error:
                raise deleted_meanwhile(error) from error
            require_reports(file, found)

    async def slices(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> SliceSizes:
        """Return the number of reports of each slice, whichever this reads, by day."""
        return _sizes(self._all_files(key, since, until))

    async def counted_slices(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> set[tuple[dt.date, str]]:
        """Return the days and slices that have counts of forgotten reports."""
        files = self._all_files(key, since, until)
        return {(_day_of(file), file.slice) for file in files if file.only_counts}

    async def versions(self, metric: str) -> list[int]:
        """Return the versions of a metric for which there are reports, or counts of them."""
        return sorted({partition.version for partition in self._days(metric)})

    def files(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
    ) -> list[ReportFile]:
        """Return the files of the days `since` to `until` that are read, by day."""
        files = self._all_files(key, since, until)
        if self.where is None:
            return files
        chosen = self.where.chosen(_sizes(files))
        return [file for file in files if (_day_of(file), file.slice) in chosen]

    def _days(self, metric: str) -> dict[Partition, Location]:
        if metric not in self._listed:
            self._listed[metric] = {
                partition: folder
                for folder in _days_in(self._directory / f"metric={metric}")
                if (partition := partition_of(folder / MANIFEST))
            }
        return self._listed[metric]

    def _all_files(
        self, key: MetricVersion, since: dt.date | None, until: dt.date | None
    ) -> list[ReportFile]:
        folders = self._days(key.metric)
        days = sorted(
            partition
            for partition in folders
            if partition.key == key
            and (since or partition.day) <= partition.day <= (until or partition.day)
        )
        unread = [day for day in days if day not in self._read]
        with ThreadPoolExecutor(_AT_ONCE, "manifest") as pool:
            found = pool.map(read_manifest, [folders[day] for day in unread])
            self._read.update(zip(unread, found, strict=True))
        return [file for day in days for file in self._read[day]]


def _day_of(file: ReportFile) -> dt.date:
    return cast("Partition", file.partition).day  # a reader's files have one


def _sizes(files: Iterable[ReportFile]) -> SliceSizes:
    return added((_day_of(file), file.slice, file.reports or 0) for file in files)


def require_reports(file: ReportFile, found: int) -> None:
    """Raise ReportFileError if a file holds another number of reports than its manifest says."""
    if file.reports not in {None, found}:
        raise ReportFileError(f"{file.path}: {found:,} reports; its manifest says {file.reports:,}")


def deleted_meanwhile(error: MissingFileError) -> MissingFileError:
    """Return the error of a file that was there when its folder was listed."""
    return MissingFileError(
        f"{error}; it was deleted while it was read, as by another export of its day: run this "
        "again"
    )
