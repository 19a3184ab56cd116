"""Too few reports aren't decoded, and the refusal says what to do about it."""

import datetime as dt

import pytest

from factories import make_metric
from hubbub.decoder.errors import UndecodableError
from hubbub.decoder.inputs import MIN_REPORTS
from hubbub.decoder.reports.loading import require_reports


def test_enough_reports_are_released():
    require_reports(make_metric(), 1000, 1000)
    require_reports(make_metric(), MIN_REPORTS, MIN_REPORTS)


def test_one_report_too_few_is_refused_with_all_that_one_must_know():
    with pytest.raises(UndecodableError) as refusal:
        require_reports(make_metric(version=3), 1999, 2000, dt.date(2026, 11, 1))
    message = str(refusal.value)
    for part in ("1,999 reports of homepage version 3", "from 2026-11-01 to now",
                 "at least 2,000", "--min-reports (HUBBUB_MIN_REPORTS)"):  # fmt: skip
        assert part in message
