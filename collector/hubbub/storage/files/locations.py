"""Addresses -> files, wherever they lie: a disk, S3, Google's or Microsoft's object storage.

A `Location` is an address and nothing else: it opens no connection before it is used, and may be
sent to another process, which finds its own credentials. Invariants: a file appears under its name
whole or not at all; credentials come from the environment and the providers of pyarrow's file
systems, never from an address, so that no address has to be kept secret; a peer that is silent ends
in an error and never in waiting.
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
from typing import IO, Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from hubbub.storage.errors import StorageError, StoreError

SCHEMES = ("s3", "gs", "abfs", "abfss", "file")
"""How addresses of storage begin; all else is a path on this machine."""

CONNECT_SECONDS = 5.0  # storage in another region answers within one
SILENT_SECONDS = 20.0
"""How long S3 may send nothing, before a request is tried again or given up."""

ATTEMPTS = 5
"""How often a request to S3 is tried, with growing pauses between."""

RETRY_SECONDS = 60
"""How long requests to Google's storage are tried again."""

_AHEAD_BYTES = 2**22  # a request of some 50 ms is worth this much at 100 MB/s

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_NEITHER = re.compile(rf"(parquet|{'|'.join(SCHEMES)}):", re.IGNORECASE)
"""How what is meant as an address may begin, and would be a path of that name."""
_AZURE_HOST = re.compile(r"([a-z0-9-]+)@([a-z0-9]+)\.(dfs|blob)\.core\.windows\.net")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}")


class FileStamp(NamedTuple):
    """By what it is noticed that a file was written anew: its bytes, and the nanosecond."""

    size: int
    changed: int


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A file or a folder somewhere; `str` gives its address, `resolve` makes one of an address.

    Attributes
    ----------
    root : str
        What contains it, such as s3://BUCKET; empty: this machine.
    path : PurePosixPath
        Its path below that.
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
        """The folder that it lies in."""
        return Location(self.root, self.path.parent)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of its whole path."""
        return self.path.parts if self.root else self._local.absolute().parts

    @property
    def is_local(self) -> bool:
        """Whether it lies on this machine."""
        return not self.root

    def arrow(self) -> tuple[Any, str]:
        """Return pyarrow's file system, and the path in it, as pyarrow's functions take them.

        Raises
        ------
        StoreError
            If pyarrow is missing, or was built without this file system.
        StorageError
            If the storage can't be reached.
        """
        if not self.root:
            return require_arrow_fs().LocalFileSystem(), str(self._local.absolute())
        with storage_errors(self):
            filesystem, container = _remote(self.root)
        return filesystem, f"{container}/{self._key}" if self._key else container

    def open(self) -> io.BufferedReader:
        """Open a file for reading (OSError and StorageError as of all that follows).

        Raises
        ------
        FileNotFoundError
            If there is none.
        OSError
            If the disk refuses.
        StorageError
            If other storage does.
        """
        if not self.root:
            return self._local.open("rb")
        filesystem, path = self.arrow()
        with storage_errors(self):
            # Each read of pyarrow's file is a request, and gzip reads some kilobytes at a time.
            return io.BufferedReader(filesystem.open_input_file(path), _AHEAD_BYTES)

    def read_bytes(self) -> bytes:
        """Return all of a file."""
        if not self.root:
            return self._local.read_bytes()
        filesystem, path = self.arrow()
        with storage_errors(self), filesystem.open_input_file(path) as file:
            return bytes(file.read())

    @contextlib.contextmanager
    def create(self) -> Iterator[IO[bytes]]:
        """Yield a file to write to, which takes the place of what is there if all goes well.

        It is then on disk, or acknowledged by the storage. If the process is killed meanwhile,
        nothing of it is to be seen.
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
        """Make this the contents of a file, at once."""
        with self.create() as file:
            file.write(data)

    def remove(self) -> None:
        """Delete a file, if it is there."""
        if not self.root:
            self._local.unlink(missing_ok=True)
            return
        filesystem, path = self.arrow()
        with contextlib.suppress(FileNotFoundError), storage_errors(self):
            filesystem.delete_file(path)

    def size(self) -> int | None:
        """Return the number of bytes of a file, or None if there is none."""
        if not self.root:
            return self._local.stat().st_size if self._local.is_file() else None
        info = self._info()
        return None if info.size is None else int(info.size)

    def stamp(self) -> FileStamp:
        """Return what changes when a file is written anew.

        Raises
        ------
        FileNotFoundError
            If there is none.
        """
        if not self.root:
            status = self._local.stat()
            return FileStamp(status.st_size, status.st_mtime_ns)
        info = self._info()
        if info.size is None:
            raise _no_object(self)
        return FileStamp(info.size, info.mtime_ns or 0)

    def is_folder(self) -> bool:
        """Tell whether it is a folder, or the beginning of objects' names before a slash."""
        if not self.root:
            return self._local.is_dir()
        return bool(self._info().type == require_arrow_fs().FileType.Directory)

    def exists(self) -> bool:
        """Tell whether there is a file or a folder."""
        return self.is_folder() or self.size() is not None

    def entries(self) -> list[str]:
        """Return the names of what lies in a folder, in order; none if it isn't there."""
        if not self.root:
            return sorted(p.name for p in self._local.iterdir()) if self._local.exists() else []
        return sorted(PurePosixPath(info.path).name for info in self._select(recursive=False))

    def file_names(self) -> list[str]:
        """Return the names of the files in a folder, in order; none if it isn't there."""
        if not self.root:
            return [name for name in self.entries() if (self._local / name).is_file()]
        found = (info for info in self._select(recursive=False) if info.size is not None)
        return sorted(PurePosixPath(info.path).name for info in found)

    def files(self) -> list[Location]:
        """Return the files in a folder and in those below it, in order."""
        if not self.root:
            found = (path for path in self._local.rglob("*") if path.is_file())
            return sorted(Location("", PurePosixPath(path)) for path in found)
        names = [info.path for info in self._select(recursive=True) if info.size is not None]
        return sorted(Location(self.root, PurePosixPath(name.partition("/")[2])) for name in names)

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
        selector = require_arrow_fs().FileSelector(path, recursive=recursive, allow_not_found=True)
        with storage_errors(self):
            return cast("list[Any]", filesystem.get_file_info(selector))


Address = Location | os.PathLike[str] | str
"""What `resolve` makes a location of."""


def resolve(address: Address) -> Location:
    """Return the location of an address; nothing is opened or looked up.

    Parameters
    ----------
    address : Location, path or str
        s3://BUCKET/PATH, gs://BUCKET/PATH, abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH,
        file:///PATH or a path.

    Raises
    ------
    StoreError
        If it is none of these, or holds credentials.
    """
    if isinstance(address, Location):
        return address
    text = os.fspath(address)
    found = _ADDRESS.fullmatch(text) if isinstance(address, str) else None
    if not found:
        if isinstance(address, str) and (begun := _NEITHER.match(text)):
            # The rest isn't repeated: it may hold a secret.
            raise StoreError(
                f"address {begun[1]}:...: expected a path, or an address such as s3://BUCKET/PATH; "
                "parquet: belongs before the --store of hubbub-decoder alone"
            )
        return Location("", PurePosixPath(text))
    scheme, rest = found[1].lower(), found[2]
    if scheme not in SCHEMES:
        raise StoreError(
            f"address {scheme}://...: must begin with {', '.join(f'{s}://' for s in SCHEMES)}, or "
            "be a path"
        )
    host, _, path = rest.partition("/")
    if scheme == "file":
        if host not in {"", "localhost"} or not path:
            raise StoreError(f"address {text!r}: expected file:///PATH")
        return Location("", PurePosixPath("/" + unquote(path)))
    pattern = _AZURE_HOST if scheme.startswith("abfs") else _BUCKET
    if "?" in rest or (not pattern.fullmatch(host) and ("@" in host or ":" in host)):
        # The address isn't repeated: it may hold a secret.
        raise StoreError(
            f"address {scheme}://...: holds a key, a password or options, which don't belong into "
            f"an address; {_CREDENTIALS[scheme[:4]]}"
        )
    if not pattern.fullmatch(host):
        form = "CONTAINER@ACCOUNT.dfs.core.windows.net" if pattern is _AZURE_HOST else "BUCKET"
        raise StoreError(f"address {text!r}: expected {scheme}://{form}/PATH")
    parts = [part for part in path.split("/") if part]
    if {".", ".."} & set(parts):
        raise StoreError(f"address {text!r}: '.' and '..' mean nothing there; write the path out")
    return Location(f"{scheme}://{host}", PurePosixPath(*parts))


_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL, or AWS_PROFILE",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS",
    "abfs": "set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET",
}


def require_arrow_fs() -> Any:
    """Return pyarrow.fs, which is imported only for what isn't a plain file.

    Raises
    ------
    StoreError
        If pyarrow isn't installed.
    """
    try:
        return importlib.import_module("pyarrow.fs")
    except ModuleNotFoundError as error:
        raise StoreError(
            f"object storage needs the package {error.name}: pip install 'hubbub[parquet]'"
        ) from error


@functools.cache
def _remote(root: str) -> tuple[Any, str]:
    """Return the file system of a bucket or container, and its name there."""
    fs, address = require_arrow_fs(), urlsplit(root)
    try:
        if address.scheme == "s3":
            return _s3(fs, address.netloc), address.netloc
        if address.scheme == "gs":
            limit = dt.timedelta(seconds=RETRY_SECONDS)
            return fs.GcsFileSystem(retry_time_limit=limit), address.netloc
        account = cast("re.Match[str]", _AZURE_HOST.fullmatch(address.netloc))
        return fs.AzureFileSystem(account[2]), account[1]
    except ImportError as error:
        raise StoreError(f"{root}: {error}") from error


def _s3(fs: Any, bucket: str) -> Any:
    """Connect to S3, or to the server of AWS_ENDPOINT_URL, which this file system doesn't read."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        # Other servers hardly care; of Amazon's the bucket's is asked for, which is the right one.
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
_OTHER_FAULTS = (
    re.compile(r"google::cloud::Status\((?P<code>\w+): (?P<words>.*?)(?: error_info=.*)?\)?$"),
    re.compile(r"Azure Error: \[(?P<code>\w*)\](?: \d+)? (?P<words>.*?)(?: Request ?I[dD]:.*)?$"),
)
_UNSAID = {"", "No response body."}
_CUT_OFF = "Failed to flush response stream"
"""Said where the answer about an error is longer than what was asked for."""
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
}
_EXPIRED = "the credentials have expired; renew them, and run this again"
# What is asked about an object, or fetched of it, is refused without the error's name.
_UNNAMED = {
    "400": "refused; the credentials have probably expired: renew them, and run this again",
    "403": f"access denied; the credentials have expired, are unknown, or lack {_DENIED}",
    "429": _BUSY,
    "503": _BUSY,
}
_GONE = {"NO_SUCH_KEY", "RESOURCE_NOT_FOUND"}
"""Said of an object that was there when it was opened."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def storage_errors(location: Location) -> Iterator[None]:
    """Tell in a line what went wrong with storage; errors of this machine's disk pass as they are.

    A missing file is a FileNotFoundError everywhere; all other faults become a StorageError.
    """
    try:
        yield
    except FileNotFoundError as error:
        if location.is_local:
            raise
        raise _no_object(location) from error
    except OSError as error:
        # A file that isn't gzip is no fault of the storage; nor is a full TMPDIR, meanwhile.
        if location.is_local or isinstance(error, gzip.BadGzipFile) or error.errno in _FULL:
            raise
        found = _FAULT.search(str(error))
        if found and found[1] in _GONE:
            raise _no_object(location) from error
        if found and found[4].startswith(_CUT_OFF):
            location.stamp()  # which is refused in words, or finds no object
        raise StorageError(f"{location}: {describe_fault(error)}") from error


def _no_object(location: Location) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such object", str(location))


def describe_fault(error: OSError) -> str:
    """Return an error of pyarrow's in a line, without the requests and keys that it repeats."""
    text = " ".join(str(error).split())
    if "ExpiredToken" in text or "EXPIRED_TOKEN" in text:
        return _EXPIRED
    found = _FAULT.search(text)
    if not found:
        others = next(filter(None, (fault.search(text) for fault in _OTHER_FAULTS)), None)
        return f"{others['words']} ({others['code']})" if others else text
    code, status, operation, details = found.groups()
    status = "403" if code == "ACCESS_DENIED" else status
    if details.startswith(_CUT_OFF):
        meaning = "refused, and the reason was lost; run this again"
    elif details in _UNSAID and status:
        meaning = _UNNAMED.get(status, f"the server fails (HTTP status {status}); try again later")
    else:
        meaning = _MEANING.get(code, details or code)
    return f"{meaning} ({operation})"


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Let an error of writing, as on a full disk, say where it was: the system's don't."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def _put_in_place(path: Path) -> Iterator[IO[bytes]]:
    """Write under a temporary name, which no reader takes for data; then make it `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with named_errors(path), temporary.open("wb") as file:
            yield file
            # Or a power cut could leave the new name with nothing in it.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Let names outlast a power cut in the order in which they appeared."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
