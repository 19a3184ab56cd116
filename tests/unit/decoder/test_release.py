"""Too few reports aren't decoded, and the refusal says what to do about it."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from factories import make_metric
from hubbub.decoder.engines import LocalEngine
from hubbub.decoder.options import MIN_REPORTS
from hubbub.decoder.reports import ParquetFile, count, require_enough
from hubbub.inference import UndecodableError


def test_enough_reports_are_released():
    require_enough("homepage", 1000, 1000)
    require_enough("homepage", MIN_REPORTS, MIN_REPORTS)


def test_one_report_too_few_is_refused_with_all_that_one_must_know(tmp_path):
    metric = make_metric(version=3)
    width = metric.params.k // 8
    file = tmp_path / "r.parquet"
    pq.write_table(
        pa.table({"cohort": pa.array([0] * 1999, pa.uint16()), "bits": [bytes(width)] * 1999}), file
    )
    with pytest.raises(UndecodableError) as refusal:
        count(ParquetFile(str(file)), metric, LocalEngine(), min_reports=2000)
    message = str(refusal.value)
    for part in ("1,999 reports of", "r.parquet",
                 "at least 2,000", "--min-reports (HUBBUB_MIN_REPORTS)"):  # fmt: skip
        assert part in message
