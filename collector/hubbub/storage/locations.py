"""Addresses -> files on a disk, or in S3, Google's or Microsoft's object storage.

A `Location` is an address and nothing else: it opens no connection before it is used, and may be
sent to another process. pyarrow's file systems do the rest; a disk needs no pyarrow. Invariants: a
file appears under its name whole or not at all; credentials come from the environment, never from
an address, so no address is secret; a server that is silent ends in an error, never in waiting.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import functools
import gzip
import importlib
import io
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast
from urllib.parse import unquote

from hubbub.storage.errors import StorageError, StoreError

SCHEMES = ("s3", "gs", "abfs", "abfss", "file")

CONNECT_SECONDS = 5.0  # storage in another region answers within one
SILENT_SECONDS = 20.0
"""How long S3 may send nothing, before a request is tried again or given up."""
ATTEMPTS = 5
"""How often a request to S3 is tried, with growing pauses between."""
RETRY_SECONDS = 60
"""How long requests to Google's storage are tried again."""

_AHEAD_BYTES = 2**22  # a request of some 50 ms is worth this much at 100 MB/s

_ADDRESS = re.compile(rf"([a-z][a-z0-9+.-]*)://|(parquet|{'|'.join(SCHEMES)}):", re.IGNORECASE)
"""How a text begins that is meant as an address."""
_REMOTE = re.compile(
    r"(?i:(?P<s3>s3)|gs)://(?P<bucket>[a-z0-9][a-z0-9._-]{1,221})(?P<path>/[^?]*)?"
    r"|(?i:abfss?)://(?P<container>[a-z0-9-]+)@(?P<account>[a-z0-9]+)\.(?:dfs|blob)"
    r"\.core\.windows\.net(?P<below>/[^?]*)?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A file or folder: `root` is such as s3://BUCKET, or empty for this machine.

    Methods raise OSError where a disk refuses, StorageError where other storage does, and
    FileNotFoundError for a file that is missing anywhere.
    """

    root: str
    path: PurePosixPath

    def __str__(self) -> str:
        if not self.root:
            return str(self.path)
        return f"{self.root}/{self._key}" if self._key else self.root

    def __truediv__(self, below: str | PurePosixPath) -> Location:
        return Location(self.root, self.path / below)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.name

    @property
    def parent(self) -> Location:
        """The folder that contains it."""
        return Location(self.root, self.path.parent)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of its whole path."""
        return self.path.parts if self.root else self._local.absolute().parts

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return not self.root

    def arrow(self) -> tuple[Any, str]:
        """Return pyarrow's file system, and the path in it, as pyarrow's functions take them."""
        if not self.root:
            return require("pyarrow.fs").LocalFileSystem(), str(self._local.absolute())
        with storage_errors(self):
            filesystem, container = _remote(self.root)
        return filesystem, f"{container}/{self._key}" if self._key else container

    def open(self) -> io.BufferedReader:
        """Open a file for reading; wrap what reads from it in `storage_errors`."""
        if not self.root:
            return self._local.open("rb")
        filesystem, path = self.arrow()
        with storage_errors(self):
            # Each read of pyarrow's file is a request, and gzip reads some kilobytes at a time.
            return io.BufferedReader(filesystem.open_input_file(path), _AHEAD_BYTES)

    def read_bytes(self) -> bytes:
        """Return all of a file."""
        with storage_errors(self), self.open() as file:
            return file.read()

    @contextlib.contextmanager
    def create(self) -> Iterator[IO[bytes]]:
        """Yield a file to write to, which replaces what is there once the block ends well.

        It is then on disk, or acknowledged by the storage. If the process is killed before,
        nothing of it can be seen.
        """
        if not self.root:
            with _put_in_place(self._local) as file:
                yield file
            return
        filesystem, path = self.arrow()
        with storage_errors(self):
            file = filesystem.open_output_stream(path, compression=None)  # whatever its name
            try:
                yield file
            except BaseException:
                # pyarrow can't drop what was uploaded so far: it becomes a file, which must go.
                with contextlib.suppress(OSError):
                    file.close()
                    filesystem.delete_file(path)
                raise
            file.close()

    def write_bytes(self, data: bytes) -> None:
        """Replace the contents of a file, at once."""
        with self.create() as file:
            file.write(data)

    def remove(self) -> None:
        """Delete a file, if it is there."""
        filesystem, path = self.arrow()
        with contextlib.suppress(FileNotFoundError), storage_errors(self):
            filesystem.delete_file(path)

    def size(self) -> int | None:
        """Return the number of bytes of a file, or None if there is none."""
        if not self.root:
            return self._local.stat().st_size if self._local.is_file() else None
        return cast("int | None", self._info().size)

    def is_folder(self) -> bool:
        """Return whether it is a folder, or the beginning of objects' names before a slash."""
        return bool(self._info().type == require("pyarrow.fs").FileType.Directory)

    def files(self) -> list[Location]:
        """Return the files in a folder, and in those below it, in order; none if it is missing."""
        _, folder = self.arrow()
        found = (info.path for info in self._select(recursive=True) if info.is_file)
        return sorted(self / PurePosixPath(path).relative_to(folder) for path in found)

    def entries(self) -> list[str]:
        """Return the names of files and folders in a folder, in order; none if it is missing."""
        return sorted(info.base_name for info in self._select(recursive=False))

    @property
    def _local(self) -> Path:
        return Path(self.path)

    @property
    def _key(self) -> str:
        return "" if self.path == PurePosixPath() else str(self.path)

    def _info(self) -> Any:
        filesystem, path = self.arrow()
        with storage_errors(self):
            return filesystem.get_file_info(path)

    def _select(self, *, recursive: bool) -> list[Any]:
        filesystem, path = self.arrow()
        selector = require("pyarrow.fs").FileSelector(
            path, recursive=recursive, allow_not_found=True
        )
        with storage_errors(self):
            return cast("list[Any]", filesystem.get_file_info(selector))


Address = Location | os.PathLike[str] | str
"""The forms that `resolve` turns into a location."""


def resolve(address: Address) -> Location:
    """Return the location of a path or an address; nothing is opened or looked up.

    Raises `StoreError` if it begins like an address but isn't one, or holds credentials.
    """
    if isinstance(address, Location):
        return address
    text = os.fspath(address)
    begun = _ADDRESS.match(text) if isinstance(address, str) else None
    if not begun:
        return Location("", PurePosixPath(text))
    if text.lower().startswith("file:///"):
        return Location("", PurePosixPath(unquote(text[7:])))
    found = _REMOTE.fullmatch(text)
    path = PurePosixPath((found["path"] or found["below"] or "").strip("/")) if found else None
    if not found or path is None or ".." in path.parts:
        # The rest isn't repeated: it may hold a secret.
        raise StoreError(
            f"address {begun[1] or begun[2]}:...: expected a path, s3://BUCKET/PATH, "
            "gs://BUCKET/PATH, abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH or file:///PATH; "
            "keys and options come from the environment, such as AWS_SECRET_ACCESS_KEY and "
            "AWS_ENDPOINT_URL"
        )
    scheme, host = text.split("/")[0].lower(), text.split("/")[2]
    return Location(f"{scheme}//{host}", path)


@contextlib.contextmanager
def open_unpacked(address: Address) -> Iterator[BinaryIO]:
    """Open a file's bytes, unpacked if its name ends in .gz."""
    location = resolve(address)
    with location.open() as file:
        if not location.name.endswith(".gz"):
            yield cast("BinaryIO", file)
            return
        with gzip.open(file) as unpacked:
            yield cast("BinaryIO", unpacked)


def require(module: str, purpose: str = "object storage") -> Any:
    """Return a module of pyarrow, imported only when it is needed; `StoreError` without it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise StoreError(
            f"{purpose} needs the package {error.name}: pip install 'hubbub[parquet]'"
        ) from error


@functools.cache
def _remote(root: str) -> tuple[Any, str]:
    """Return the file system of a bucket or container, and its name there."""
    fs, found = require("pyarrow.fs"), cast("re.Match[str]", _REMOTE.fullmatch(root))
    try:
        if found["s3"]:
            return _s3(fs, found["bucket"]), found["bucket"]
        if found["bucket"]:
            limit = dt.timedelta(seconds=RETRY_SECONDS)
            return fs.GcsFileSystem(retry_time_limit=limit), found["bucket"]
        return fs.AzureFileSystem(found["account"]), found["container"]
    except ImportError as error:
        raise StoreError(f"{root}: {error}") from error


def _s3(fs: Any, bucket: str) -> Any:
    """Connect to S3, or to the server of AWS_ENDPOINT_URL, which this file system doesn't read."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        # Other servers hardly care; Amazon knows the bucket's.
        region = "us-east-1" if endpoint else fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        region=region,
        endpoint_override=endpoint,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        background_writes=False,  # what waits to be uploaded would pile up in memory
        allow_delayed_open=True,  # small files in one request
    )


_FAULT = re.compile(
    r"AWS Error (\w+) (?:\(HTTP status (\d+)\) )?during (\w+) operation: *(.*)", re.DOTALL
)
_CUT_OFF = "Failed to flush response stream"
"""S3's file system raises this where an error's body is longer than what was asked for."""
_DENIED = "the right to list, read, write and delete objects there"
_BUSY = "the server is too busy (SlowDown); try again later"
_MEANING = {
    "ACCESS_DENIED": f"access denied; the credentials need {_DENIED}",
    "INVALID_ACCESS_KEY_ID": "the server doesn't know AWS_ACCESS_KEY_ID",
    "NO_SUCH_BUCKET": "no such bucket; create it first",
    "SIGNATURE_DOES_NOT_MATCH": "the server refuses AWS_SECRET_ACCESS_KEY",
    "SLOW_DOWN": _BUSY,
    "SERVICE_UNAVAILABLE": _BUSY,
    "NETWORK_CONNECTION": "the server can't be reached, or is silent",
    # Answers without a body have only a status.
    "400": "refused; the credentials have probably expired: renew them, and run this again",
    "403": f"access denied; the credentials have expired, are unknown, or lack {_DENIED}",
    "429": _BUSY,
    "503": _BUSY,
}
_GONE = {"NO_SUCH_KEY", "RESOURCE_NOT_FOUND"}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def storage_errors(location: Location) -> Iterator[None]:
    """Turn faults of storage into StorageError, in a line; a disk's OSErrors pass as they are."""
    try:
        yield
    except OSError as error:
        # A file that isn't gzip is no fault of the storage; nor is a full TMPDIR, meanwhile.
        if location.is_local or isinstance(error, gzip.BadGzipFile) or error.errno in _FULL:
            raise
        found = _FAULT.search(str(error))
        if isinstance(error, FileNotFoundError) or (found and found[1] in _GONE):
            raise _no_object(location) from error
        # Asked again for less, it is refused in words, or there is no object.
        if found and found[4].startswith(_CUT_OFF) and location.size() is None:
            raise _no_object(location) from error
        raise StorageError(f"{location}: {_describe(error)}") from error


def _no_object(location: Location) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such object", str(location))


def _describe(error: OSError) -> str:
    """Return an error of pyarrow's in a line, without the requests and keys that S3's repeat."""
    text = " ".join(str(error).split())
    if "ExpiredToken" in text or "EXPIRED_TOKEN" in text:
        return "the credentials have expired; renew them, and run this again"
    found = _FAULT.search(text)
    if not found:
        return text
    code, status, operation, details = found.groups()
    status = "403" if code == "ACCESS_DENIED" else status
    if details.startswith(_CUT_OFF):
        meaning = "refused, and the reason was lost; run this again"
    elif status and details in {"", "No response body."}:
        fails = f"the server fails (HTTP status {status}); try again later"
        meaning = _MEANING.get(status, fails)
    else:
        meaning = _MEANING.get(code, details or code)
    return f"{meaning} ({operation})"


@contextlib.contextmanager
def _put_in_place(path: Path) -> Iterator[IO[bytes]]:
    """Write under a temporary name, which no reader takes for data; then make it `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("wb") as file:
            yield file
            # Or a power cut could leave the new name with nothing in it.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        # Names outlast a power cut in the order in which they appeared.
        sync(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)  # as on a full disk: the system's have none
        raise
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
