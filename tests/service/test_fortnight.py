"""What a service holds is level once all of its times have passed; `make fortnight` runs longer."""

import pytest

from evaluation.loadtest.fortnight import Weeks, faults_of, run


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_disk_ids_reports_and_memory_level_off_over_weeks(store):
    weeks = Weeks(store, 26, 0.7, 60.0, deduplication=2, report=3, retention=5)
    assert not list(faults_of(run(weeks), weeks))
