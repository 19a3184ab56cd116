"""Results as Parquet: the CSV's columns with types, nulls and provenance."""

import io

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from hubbub.decoder import Decoding
from hubbub.reporting import CHUNK, COLUMNS, strings_estimates
from unit.decoder.decodings import make_decoding, make_provenance
from unit.decoder.rendered import parquet_of

NASTY = ["", " x ", "007", "NA", "nan", "a\nb", "\0", "日本語", "\U0001f984"]


def written(decoding: Decoding, *, detected_only: bool = False) -> bytes:
    result = strings_estimates(decoding, provenance=make_provenance(), detected_only=detected_only)
    return parquet_of(result)


def table_of(data: bytes) -> pa.Table:
    return parquet.read_table(io.BytesIO(data))


def test_columns_are_the_csvs_with_types():
    schema = table_of(written(make_decoding(["a"]))).schema
    assert tuple(schema.names) == COLUMNS
    assert schema.types == [pa.string(), *[pa.float64()] * 11, pa.bool_(), pa.string()]


def test_strings_and_numbers_come_back_exactly():
    share = np.linspace(-0.1, 1, len(NASTY)) / 3
    decoding = make_decoding(NASTY, share.tolist(), [True] * 4 + [False] * 5)
    rows = table_of(written(decoding)).to_pydict()
    assert rows["string"] == NASTY
    assert rows["proportion"] == share.tolist()
    assert rows["count"] == (share * 1000).tolist()
    assert rows["detected"] == [True] * 4 + [False] * 5
    kept = table_of(written(decoding, detected_only=True)).to_pydict()
    assert kept["string"] == NASTY[:4]


@pytest.mark.parametrize("n", [0, 1, 9 * CHUNK + 1])
def test_rows_of_many_chunks_come_in_order(n):
    decoding = make_decoding([str(i) for i in range(n + 1)], detected=[i < n for i in range(n + 1)])
    data = written(decoding, detected_only=True)
    assert table_of(data).column("string").to_pylist() == [str(i) for i in range(n)]
    compression = parquet.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    assert n == 0 or compression.column(0).compression == "ZSTD"
