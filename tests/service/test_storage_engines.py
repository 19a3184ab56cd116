"""Tasks of engines that read object storage, of which something goes away meanwhile."""

import os
from collections.abc import Iterator

import pytest

from engine_storage import (
    Export,
    check_exported_again,
    check_killed_worker,
    check_vanished_object,
    running_s3,
)
from hubbub.decoder.engines import Engine, LocalEngine, open_dask
from hubbub.protocol import Records
from hubbub.storage import read_records, resolve, write_records
from service.faults import kill
from service.s3_server import BUCKET, Proxy

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def s3() -> Iterator[Proxy]:
    with running_s3() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def dask() -> Iterator[Engine]:
    """One worker, so that it is known who does the first task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hubbub.decoder.engines.cores", lambda: 1)
        with open_dask() as engine:
            yield engine


@pytest.fixture
def export(tmp_path, s3) -> Export:
    return Export(tmp_path, s3)


def test_worker_that_is_killed_while_it_reads(dask, export):
    [worker] = dask._client.run(os.getpid).values()
    check_killed_worker(dask, export, lambda: kill(worker))


def test_objects_that_vanish_while_others_are_read_are_errors(dask, export):
    for engine in (LocalEngine(2), dask):
        check_vanished_object(engine, export)
        export.add(range(0))


def test_days_that_are_exported_again_while_they_are_read(dask, export):
    check_exported_again(dask, export)


def test_row_group_is_fetched_in_a_request_a_column(tmp_path, s3):
    """Of 4 MiB, as exports have them, from any storage but a disk."""
    width = 18
    block = Records(width, os.urandom(2**22 // width * width))
    path = resolve(f"s3://{BUCKET}/{tmp_path.name}/part-0.parquet")
    write_records(path, width, [block, block])
    s3.requests.clear()
    assert sum(records.reports for records in read_records(path)) == 2 * block.reports
    assert len([line for line in s3.requests if line.startswith("GET")]) <= 1 + 2 * 2
