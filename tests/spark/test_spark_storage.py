"""Spark's tasks that read object storage, of which something goes away meanwhile."""

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
from evaluation.cluster.processes import descendants
from hubbub.decoder.engines import Engine, open_engine
from service.faults import kill
from service.s3_server import Proxy


@pytest.fixture(scope="module")
def s3() -> Iterator[Proxy]:
    with running_s3() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def spark(s3) -> Iterator[Engine]:
    """One worker, so that it is known who does the first task."""
    with open_engine("spark", "local[1]") as engine:
        # The JVM may have been started before the server.
        engine._context.environment.update(s3.environment)  # type: ignore[attr-defined]
        yield engine


@pytest.fixture
def export(tmp_path, s3) -> Export:
    return Export(tmp_path, s3)


def test_worker_that_is_killed_while_it_reads(spark, export):
    check_killed_worker(spark, export, lambda: kill(descendants(os.getpid(), "pyspark.daemon")[0]))


def test_object_that_vanishes_while_others_are_read(spark, export):
    check_vanished_object(spark, export)


def test_days_that_are_exported_again_while_they_are_read(spark, export):
    check_exported_again(spark, export)
