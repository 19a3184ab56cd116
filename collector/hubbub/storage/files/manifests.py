"""Which files of a day count: `_manifest.json` beside them names those of one export.

Object storage has no renaming, so an export writes files under names never used before and then
the manifest, in one request that replaces the earlier one: from then on the new files are the day,
and until then the old ones are. What a killed export left is named nowhere, and deleted by the next
one. Invariants: a file is complete before a manifest names it; a name is never used twice.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from hubbub.storage.errors import ReportFileError
from hubbub.storage.files.locations import Location

MANIFEST = "_manifest.json"
"""Hive's readers pass over what begins with `_`."""

_FORMAT = 1
_READINGS = 5
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
    """

    name: str
    reports: int
    size: int

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
            {"name": file.name, "reports": file.reports, "bytes": file.size} for file in self.files
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
                CommittedFile(str(file["name"]), int(file["reports"]), int(file["bytes"]))
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
