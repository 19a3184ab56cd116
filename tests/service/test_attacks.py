"""Programs that attack hubbub and load a collector, in short forms; `make` runs longer ones."""

import pytest

from evaluation.attacks.__main__ import attack_names, outcomes_of
from evaluation.loadtest.fortnight import Weeks, faults_of, run as run_weeks
from evaluation.loadtest.growth import main as grow
from evaluation.loadtest.soak import main as soak

_LONG = {"answer_times", "disk_of_postgresql", "front_door", "linking", "published_numbers"}
_LONG |= {"leftovers", "restores", "shuffled_days"}
"""What takes three quarters of the time of all."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if name in _LONG else name
        for name in attack_names()
    ],
)
def test_attack_stays_within_what_is_claimed(name):
    outcomes = list(outcomes_of(name, quick=True))
    assert outcomes
    broken = [outcome for outcome in outcomes if not outcome.holds]
    assert broken == []


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_disk_ids_reports_and_memory_level_off_over_weeks(store):
    weeks = Weeks(store, 26, 1.5, 60.0, deduplication=2, report=3, retention=5)
    assert not list(faults_of(run_weeks(weeks), weeks))


@pytest.mark.long
def test_soak_of_some_seconds_finds_no_fault(capsys):
    assert soak(["--minutes", "0.03", "--connections", "16"]) == 0
    printed = capsys.readouterr().out
    for figure in ("requests/s", "MiB resident", "fdatasync p50", "bytes a report"):
        assert figure in printed


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_stores_of_two_sizes_are_compared(store, capsys):
    small = ["--ids", "3000", "--few", "300", "--days", "3", "--turns", "1", "--seconds", "0.5"]
    grow(["--store", store, *small])
    said = capsys.readouterr().out
    assert "300 ids" in said
    assert "3,000 ids" in said
    assert "forgetting a day" in said
