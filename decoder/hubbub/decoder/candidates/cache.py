"""Hashed candidates kept on disk, so that a repeated job needn't read and hash them again.

An entry is a directory named after the SHA-256 of the list's file; it holds the table as .npy files
that are mapped into memory, and a description of them.

Invariant: an entry is used only if every byte of it is what was written; otherwise it is made anew,
and a note says so. It depends on the file alone, not on k, h and m.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from hubbub.decoder.candidates.files import STDIN, CandidateList, read_list
from hubbub.inference.string_table import StringTable
from hubbub.storage.errors import StorageError
from hubbub.storage.files.locations import Address, resolve, storage_errors

FORMAT = "hubbub hashed candidates 2"
_DESCRIPTION = "description.json"
_ARRAYS = ("blob", "offsets", "words")


class _UnusableError(Exception):
    """An entry isn't what was written; the message says why."""


def read_candidates(path: str, cache: Path | None = None) -> CandidateList:
    """Read a list of candidates, or what was kept of it.

    Parameters
    ----------
    path : str
        As of `files.read_pieces`.
    cache : Path, optional
        Directory to keep hashed lists in; made if there is none, for its owner's eyes only. Pipes
        and standard input are read without it.

    Raises
    ------
    CandidateError
        As `read_list`. An unusable cache is no error: the list's notes mention it.
    """
    if cache is None or path == STDIN:
        return read_list(path)
    source = resolve(path)
    try:
        if source.size() is None:
            return read_list(path)
        digest = _digest(source)
    except (OSError, StorageError):
        return read_list(path)  # which says what is the matter
    # The name's end says how the bytes are read.
    entry = cache / f"{digest}{source.path.suffix if path.endswith(('.gz', '.parquet')) else ''}"
    notes = []
    if entry.exists():
        try:
            return _load(entry, digest)
        except (_UnusableError, OSError, ValueError) as error:
            notes.append(f"candidate cache {entry}: {error}; made anew")
    listed = read_list(path)
    try:
        if _digest(source) == digest:  # else it was changed while it was read
            _keep(listed, entry, digest, replace=bool(notes))
    except (OSError, StorageError) as error:
        reason = getattr(error, "strerror", None) or error
        notes.append(f"candidate cache {cache}: {reason}; nothing is kept")
    return CandidateList(listed.strings, listed.words, listed.repeats, tuple(notes))


def _load(entry: Path, digest: str) -> CandidateList:
    """Map an entry into memory; it fails if it was damaged or others could have written it."""
    for path in (entry, *entry.iterdir()):
        status = path.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise _UnusableError(f"{path.name} isn't private to its user")
    described: Any = json.loads((entry / _DESCRIPTION).read_bytes())
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise _UnusableError(f"its format isn't '{FORMAT}'")
    if described.get("source") != digest or not isinstance(described.get("repeats"), int):
        raise _UnusableError("it belongs to another list")
    for name in _ARRAYS:
        if described.get(name) != _digest(_array_path(entry, name)):
            raise _UnusableError(f"{name}.npy was damaged")
    blob, offsets, words = (
        np.asarray(np.load(_array_path(entry, name), mmap_mode="r", allow_pickle=False))
        for name in _ARRAYS
    )
    return CandidateList(StringTable(blob, offsets), words, described["repeats"])


def _keep(listed: CandidateList, entry: Path, digest: str, *, replace: bool) -> None:
    """Write an entry, whole or not at all."""
    entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".", dir=entry.parent))
    described: dict[str, object] = {"format": FORMAT, "source": digest, "repeats": listed.repeats}
    arrays: tuple[npt.NDArray[Any], ...] = (
        listed.strings.blob, listed.strings.offsets, listed.words
    )  # fmt: skip
    try:
        for name, array in zip(_ARRAYS, arrays, strict=True):
            with _create(_array_path(making, name)) as file:
                np.save(file, array, allow_pickle=False)
            described[name] = _digest(_array_path(making, name))
        with _create(making / _DESCRIPTION) as file:
            file.write(json.dumps(described, indent=1).encode())
        if replace:
            shutil.rmtree(entry, ignore_errors=True)
        making.rename(entry)
    except OSError:
        if not (entry / _DESCRIPTION).exists():  # else another job was faster
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _create(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _digest(path: Address) -> str:
    location = resolve(path)
    with storage_errors(location), location.open() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _array_path(entry: Path, name: str) -> Path:
    return entry / f"{name}.npy"
