"""The soak for some seconds: it runs, and finds nothing to complain of."""

import pytest

from evaluation.loadtest.soak import main


@pytest.mark.long
def test_soak_of_some_seconds_finds_no_fault(capsys):
    assert main(["--minutes", "0.03", "--connections", "16"]) == 0
    printed = capsys.readouterr().out
    for figure in ("requests/s", "MiB resident", "fdatasync p50", "bytes a report"):
        assert figure in printed
