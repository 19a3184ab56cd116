"""Faults of object storage and of disks: the right result or an error of one line, nothing else."""

import asyncio
import datetime as dt
import itertools
import os
import resource
import threading
from collections.abc import Callable, Iterable
from urllib.parse import unquote

import pytest

from hubbub.storage import (
    MANIFEST,
    MissingFileError,
    ParquetReader,
    StorageError,
    open_unpacked,
    resolve,
    storage_errors,
)
from service.operators import DAY, KEY, SECONDS, records_of
from service.s3_server import BUCKET, Fault, Trouble

pytestmark = pytest.mark.long

BUSY, EXPIRED = (503, "SlowDown"), (400, "ExpiredToken")
LARGE = 12_000_000
"""Bytes that are uploaded in two parts."""


def in_turn(method: str, troubles: Iterable[Trouble]) -> Callable[[str, str], Trouble]:
    """Let the first requests of a method fail, for data of some object."""
    left = iter(troubles)

    def fail(requested: str, path: str) -> Trouble:
        is_data = "list-type" not in path and "uploads" not in path
        return next(left, None) if requested == method and is_data else None

    return fail


def always(method: str, trouble: Trouble) -> Callable[[str, str], Trouble]:
    return in_turn(method, itertools.repeat(trouble))


def is_one_line(error: str, *words: str) -> bool:
    return (
        error.startswith("Error: ")
        and len(error.splitlines()) == 1
        and "not-to-be-shown" not in error
        and all(word in error for word in words)
    )


CUTS = [Fault.CUT_REQUEST, Fault.CUT_ANSWER]


@pytest.mark.parametrize("trouble", CUTS, ids=str)
def test_large_object_is_whole_after_a_fault_in_each_direction(through_proxy, trouble):
    data, place = os.urandom(LARGE), resolve(f"s3://{BUCKET}/large")
    through_proxy.trouble = in_turn("PUT", [trouble])
    place.write_bytes(data)
    assert len([line for line in through_proxy.requests if line.startswith("PUT")]) >= 2
    through_proxy.trouble = in_turn("GET", [trouble])
    assert place.read_bytes() == data


def test_upload_that_is_cut_for_good_leaves_no_object(through_proxy):
    place = resolve(f"s3://{BUCKET}/cut")
    through_proxy.trouble = always("PUT", Fault.CUT_REQUEST)
    with pytest.raises(StorageError, match="can't be reached, or is silent"):
        place.write_bytes(bytes(LARGE))
    assert place.size() is None


def test_day_is_exported_and_decoded_through_passing_faults(operator):
    operator.proxy.trouble = in_turn("PUT", [Fault.CUT_REQUEST, Fault.CUT_ANSWER, BUSY])
    assert operator.export()[0] == 0
    operator.proxy.trouble = in_turn("GET", [Fault.CUT_ANSWER, BUSY, BUSY])
    assert operator.decode() == (0, *operator.expected())


def test_silence_in_the_middle_of_a_body_is_overcome_or_reported(operator):
    """Three programs at once: for each the server falls silent once, or at each attempt."""
    operator.export_here()
    ever = f"{operator.address}-ever"
    unread = resolve(f"{operator.address}-unread")
    for file in resolve(operator.address).files():
        (unread / "/".join(file.path.parts[1:])).write_bytes(file.read_bytes())
    troubles = {
        ever: always("PUT", Fault.SILENT_REQUEST),
        operator.address: in_turn("GET", [Fault.SILENT_ANSWER]),
        str(unread): always("GET", Fault.SILENT_ANSWER),
    }

    def fall_silent(method: str, path: str) -> Trouble:
        if "/part-" not in path:
            return None
        [trouble] = [troubles[it] for it in troubles if f"/{it.rpartition('/')[2]}/" in path]
        return trouble(method, path)

    operator.proxy.trouble, operator.is_impatient = fall_silent, True
    export = ("hubbub-collector", "export", "--store", operator.store, "--to")
    programs = [operator.start(*export, ever)]
    for address in (operator.address, str(unread)):
        name, *arguments = operator.decoding(f"parquet:{address}")
        programs.append(operator.start(str(name), *arguments))
    answers = [(*it.communicate(timeout=SECONDS), it.returncode) for it in programs]
    not_exported, decoded, not_decoded = answers
    assert decoded == (*operator.expected(), 0)
    for (out, error, code), address in ((not_exported, ever), (not_decoded, str(unread))):
        assert (out, code) == ("", 1)
        assert is_one_line(error, f"{address}/metric=homepage", "is silent")
    assert not [file for file in resolve(ever).files() if file.name == MANIFEST]


def test_credentials_that_expire_in_the_middle(operator):
    """The day that was told of counts, the other one doesn't; the next export completes it.

    Of the decoder's requests S3 refuses the first without a body, so its status is all there is.
    """
    second = DAY + dt.timedelta(days=1)
    operator.add(range(500), second)
    has_expired = threading.Event()

    def expire(method: str, path: str) -> Trouble:
        if f"day={second}/part-" in unquote(path) and method in {"PUT", "HEAD"}:
            has_expired.set()
        return EXPIRED if has_expired.is_set() else None

    operator.proxy.trouble = expire
    code, out, error = operator.export()
    assert code == 1
    assert f"day={DAY}/part-" in out
    assert f"day={second}" not in out
    assert is_one_line(error, f"day={second}", "the credentials have expired; renew them")
    assert len(operator.exported()) == 1_000
    has_expired.clear()
    operator.export_here()
    assert len(operator.exported()) == 1_500
    code, out, error = operator.decode()
    assert (code, out) == (1, "")
    assert is_one_line(error, f"day={second}", "the credentials have probably expired")


LACKING = "lack the right to list, read, write and delete objects there"


@pytest.mark.parametrize(
    ("status", "code", "named", "unnamed"),
    [
        (503, "SlowDown", "too busy (SlowDown)", "too busy (SlowDown)"),
        (400, "ExpiredToken", "have expired; renew", "have probably expired: renew"),
        (403, "AccessDenied", "access denied; the credentials need the right", LACKING),
        (500, "InternalError", "refused by the test", "the server fails (HTTP status 500)"),
    ],
)
def test_refusals_are_explained_with_or_without_a_body(through_proxy, status, code, named, unnamed):
    place = resolve(f"s3://{BUCKET}/refused")
    through_proxy.trouble = lambda _method, _path: (status, code)
    for attempt, said in ((lambda: place.write_bytes(b"x"), named), (place.size, unnamed)):
        with pytest.raises(StorageError) as error:
            attempt()
        assert str(error.value).startswith(f"{place}: ")
        assert said in str(error.value)


@pytest.mark.parametrize(
    ("methods", "said"),
    [({"GET"}, "the reason was lost; run this again"), ({"GET", "HEAD"}, LACKING)],
)
def test_refusal_whose_words_are_lost_is_asked_about(through_proxy, methods, said):
    """They are lost where they are longer than what was asked for."""
    place = resolve(f"s3://{BUCKET}/small")
    place.write_bytes(b"x")
    with place.open() as file:
        through_proxy.trouble = lambda method, _path: (
            (403, "AccessDenied") if method in methods else None
        )
        with pytest.raises(StorageError) as error, storage_errors(place):
            file.read()
    assert str(error.value).startswith(f"{place}: ")
    assert said in str(error.value)


@pytest.mark.usefixtures("s3")
def test_missing_bucket_is_reported():
    with pytest.raises(StorageError, match="no such bucket; create it first"):
        resolve("s3://missing/x").write_bytes(b"x")


def test_object_that_vanishes_under_the_reader_is_missing(operator):
    """Whether before it is opened or after: S3 says that in two ways, of which one can be lost.

    An answer about an error that is longer than what was asked for isn't read.
    """
    place = resolve(f"s3://{BUCKET}/vanishing")
    for size in (10, 1_000):
        place.write_bytes(bytes(size))
        with place.open() as file:
            place.remove()
            with (
                pytest.raises(FileNotFoundError, match="no such object"),
                storage_errors(place),
            ):
                file.read()
    assert operator.export()[0] == 0
    reader = ParquetReader(operator.address)

    async def read():
        await reader.count(KEY)
        [part] = [file for file in resolve(operator.address).files() if "part-" in file.name]
        part.remove()
        with pytest.raises(MissingFileError, match="run this again"):
            await records_of(reader)

    asyncio.run(read())


@pytest.mark.usefixtures("s3")
def test_objects_are_what_was_written_whatever_their_name():
    """Pyarrow would pack what is called .gz, and unpack it again."""
    place = resolve(f"s3://{BUCKET}/list.gz")
    place.write_bytes(b"no gzip")
    assert place.size() == 7
    assert place.read_bytes() == b"no gzip"
    with (
        pytest.raises(OSError, match="Not a gzipped file"),
        storage_errors(place),
        open_unpacked(place) as file,
    ):
        file.read()


def test_full_disk_ends_an_export_and_leaves_the_day_as_it_was(operator, tmp_path):
    """No file may be larger than 100,000 bytes, as if the disk were full then."""
    operator.address = f"file://{tmp_path}/out"
    operator.export_here()
    before = sorted((tmp_path / "out").rglob("*"))
    operator.add(range(40_000))
    command = ("export", "--store", operator.store, "--to", operator.address)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, usual[1]))
    try:
        program = operator.start("hubbub-collector", *command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    with program:
        out, error = program.communicate(timeout=SECONDS)
    assert (program.returncode, out) == (1, "")
    assert is_one_line(error, f"{tmp_path}/out/metric=homepage", "/part-", "File too large")
    assert sorted((tmp_path / "out").rglob("*")) == before
    assert len(operator.exported()) == 1_000
