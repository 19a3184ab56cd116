"""Exported reports: DIR/metric=NAME/version=N/day=YYYY-MM-DD/part-*.parquet, written and read.

The layout is Hive's, which DuckDB, Spark, pandas and others read as it is. `_counts-*.pq`, which
they pass over, holds counts of reports that were forgotten. Each file says in its metadata what it
holds and how its reports were made, so that a copy is known wherever it is.

A day's `_manifest.json` says how its reports were made and lists its files: object storage has no
renaming, so an export writes files under new names and then the manifest, in one request that
replaces the earlier one. Until then the old files are the day, and from then on the new ones. What
a killed export left is named nowhere, and deleted by the next one. Invariants: a file is complete
before a manifest names it; a name is never used twice; a day's reports are in a uniformly random
order, so nothing shows which came together; each day is read as one export left it, or its reading
ends in an error.
"""

from __future__ import annotations

import datetime as dt
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
from hubbub.storage.reading import Reader, added
from hubbub.storage.reports import MetricVersion, SliceSizes, StoredCounts, StoredRecords, pools
from hubbub.storage.shuffling import BulkShuffle

if TYPE_CHECKING:
    from hubbub.storage import Store

SCHEME = "parquet:"
"""How the address of an exported directory begins where a store's is expected."""
MANIFEST = "_manifest.json"
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

    None is what isn't known: `reports` and `size` without a manifest, `partition` and `definition`,
    how the reports were made, if another program wrote the file.
    """

    path: Location
    partition: Partition | None
    only_counts: bool = False
    reports: int | None = None
    size: int | None = None
    definition: Mapping[str, object] | None = None
    slice: str = ""


def _version_path(key: MetricVersion) -> PurePosixPath:
    return PurePosixPath(f"metric={key.metric}", f"version={key.version}")


def _parse_partition(path: str) -> Partition | None:
    found = _PARTITION.fullmatch(path)
    try:
        return (
            Partition(found[1], int(found[2]), dt.date.fromisoformat(found[3])) if found else None
        )
    except ValueError:
        return None


def _partition_of(folder: Location) -> Partition | None:
    return _parse_partition("/".join(folder.parts[-3:]))


# Manifests: which files are a day.


def read_manifest(folder: Location) -> tuple[ReportFile, ...]:
    """Return the files of a day (raises `MissingFileError` if there is no manifest)."""
    path = folder / MANIFEST
    partition, files = _partition_of(folder), []
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != _FORMAT:
            raise ValueError(f"format: expected {_FORMAT}, which this version of hubbub reads")
        definition = dict(document["definition"])
        for found in document["files"]:
            name, reports, size = str(found["name"]), int(found["reports"]), int(found["bytes"])
            if not re.fullmatch(_DATA, name) or min(reports, size) < 0:
                raise ValueError(f"file {name!r}: expected a name and numbers of an export")
            about = (name.startswith("_counts-"), reports, size, definition)
            text = _checked_slice(found.get("slice", ""))
            files.append(ReportFile(folder / name, partition, *about, text))
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: no such file") from error
    except (LookupError, TypeError, ValueError) as error:
        raise ReportFileError(f"{path}: {error}; expected the manifest of an export") from error
    return tuple(files)


def _checked_slice(text: object) -> str:
    if not isinstance(text, str) or not is_slice(text):
        raise ValueError(f"slice {text!r}: expected one like platform=mac")
    return text


def commit(folder: Location, definition: Mapping[str, object], files: Iterable[ReportFile]) -> None:
    """Make files the day, by its manifest, and delete what others there are of it."""
    listed = [
        {"name": file.path.name, "reports": file.reports, "bytes": file.size}
        | ({"slice": file.slice} if file.slice else {})
        for file in files
    ]
    document = {"format": _FORMAT, "definition": definition, "files": listed}
    (folder / MANIFEST).write_bytes(json.dumps(document, indent=1).encode() + b"\n")
    named = {file["name"] for file in listed}
    for name in folder.entries():
        if _WRITTEN.fullmatch(name) and name not in named:
            (folder / name).remove()


def check_made_so(file: ReportFile, definition: Mapping[str, object], whose: str) -> None:
    """Raise ReportFileError if a file says that its reports were made in another way."""
    expected = _shown(definition)
    # Through JSON, because only then do lists and numbers compare as they were written.
    if file.definition is not None and file.definition != json.loads(expected):
        raise ReportFileError(
            f"{file.path}: reports were made with {_shown(file.definition)}, but the {whose} has "
            f"{expected}"
        )


def _shown(definition: Mapping[str, object]) -> str:
    return json.dumps(definition, sort_keys=True)


# Finding files.


def report_file(address: Address) -> ReportFile:
    """Return a Parquet file by its own name, with what it says of itself."""
    path = resolve(address)
    about = read_metadata(path)
    partition = _parse_partition(about.get("partition", ""))
    if partition is None:
        return ReportFile(path, None)
    try:
        definition, text = json.loads(about["definition"]), _checked_slice(about["slice"])
    except (LookupError, ValueError) as error:
        raise ReportFileError(f"{path}: {error}; expected the metadata of an export") from error
    counts = path.name.endswith(".pq")
    return ReportFile(path, partition, counts, definition=definition, slice=text)


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
    if spool:
        spool.mkdir(parents=True, exist_ok=True)
    for key in {partition.key: None for partition in plan}:
        for file in report_files(directory / _version_path(key)):
            check_made_so(file, declared[key].definition, "store")
            break  # an export never mixes them
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
        about = {"partition": str(partition.path), "definition": _shown(definition), "slice": text}
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
    commit(folder, definition, files)
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
        for file in self._all_files(key)[:1]:
            check_made_so(file, metric.definition, "registry")

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
        self,
        key: MetricVersion,
        since: dt.date | None = None,
        until: dt.date | None = None,
        *,
        only_counts: bool = False,
    ) -> SliceSizes:
        """Return the number of reports of each slice, whichever this reads, by day."""
        files = self._all_files(key, since, until)
        return _sizes(file for file in files if file.only_counts or not only_counts)

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
                if (partition := _partition_of(folder))
            }
        return self._listed[metric]

    def _all_files(
        self, key: MetricVersion, since: dt.date | None = None, until: dt.date | None = None
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
