"""The measurement of large stores, on small ones: it runs, and every loaded id is recognised."""

import pytest

from evaluation.loadtest.growth import main


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_stores_of_two_sizes_are_compared(store, capsys):
    small = ["--ids", "3000", "--few", "300", "--days", "3", "--turns", "1", "--seconds", "0.5"]
    main(["--store", store, *small])
    said = capsys.readouterr().out
    assert "300 ids" in said
    assert "3,000 ids" in said
    assert "forgetting a day" in said
