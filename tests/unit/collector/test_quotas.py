"""Token buckets: how much gets through, and how long to wait for the rest."""

import math

import pytest
from hypothesis import given, strategies as st

from hubbub.collector import LEAST_CHARGE, IngestKey, Quotas, RefusalError

RATES = st.floats(1e-3, 1e9)
BURSTS = st.integers(1, 10**6)


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def quotas_of(keys: dict[str, IngestKey], workers: int = 1, clock: Clock | None = None) -> Quotas:
    quotas = Quotas(workers, clock or Clock())
    quotas.use(keys)
    return quotas


def bucket_of(rate: float, burst: int, clock: Clock) -> Quotas:
    """Return the quotas of the one key "app"."""
    key = IngestKey(sha256="0" * 64, reports_per_second=rate, burst=burst)
    return quotas_of({"app": key}, clock=clock)


def wait_of(quotas: Quotas, name: str | None, reports: int, sections: int = 1) -> float:
    """Spend; return how long to wait, infinity for ever."""
    try:
        quotas.spend(name, reports, sections)
    except RefusalError as error:
        return error.retry_after or math.inf
    return 0.0


def test_burst_passes_at_once_and_the_rest_waits():
    clock = Clock()
    bucket = bucket_of(10, 100, clock)
    assert wait_of(bucket, "app", 60) == 0
    assert wait_of(bucket, "app", 40) == 0
    assert wait_of(bucket, "app", 15) == pytest.approx(1.5)
    clock.now += 1.5
    assert wait_of(bucket, "app", 15) == 0
    assert wait_of(bucket, "app", 11) == pytest.approx(1.1)


def test_refused_request_takes_nothing():
    bucket = bucket_of(1, 100, Clock())
    assert wait_of(bucket, "app", 60) == 0
    for _ in range(5):
        assert wait_of(bucket, "app", 60) == pytest.approx(20)
    assert wait_of(bucket, "app", 40) == 0


def test_pause_fills_the_bucket_to_the_brim_and_no_further():
    clock = Clock()
    bucket = bucket_of(10, 100, clock)
    assert wait_of(bucket, "app", 100) == 0
    clock.now += 1e9
    assert wait_of(bucket, "app", 101) == math.inf
    assert wait_of(bucket, "app", 100) == 0
    assert wait_of(bucket, "app", 1) > 0


@given(RATES, BURSTS, st.lists(st.tuples(st.floats(0, 100), st.integers(1, 10**6)), max_size=50))
def test_waiting_for_retry_after_is_enough(rate, burst, asked):
    clock = Clock()
    bucket = bucket_of(rate, burst, clock)
    for pause, n in asked:
        clock.now += pause
        wait = wait_of(bucket, "app", n)
        assert (wait == math.inf) == (n > burst)
        if 0 < wait < math.inf:
            # As a Retry-After header would say it, in whole seconds.
            clock.now += math.ceil(wait)
            assert wait_of(bucket, "app", n) == 0


@given(st.floats(1e-3, 1e3), st.lists(st.integers(1, 1000), max_size=50))
def test_waiting_exactly_retry_after_is_enough(rate, asked):
    clock = Clock()
    bucket = bucket_of(rate, 1000, clock)
    for n in asked:
        wait = wait_of(bucket, "app", n)
        clock.now += wait
        assert wait == 0 or wait_of(bucket, "app", n) == 0


@given(RATES, BURSTS, st.lists(st.tuples(st.floats(0, 100), st.integers(1, 10**6)), max_size=50))
def test_no_more_than_burst_and_rate_gets_through(rate, burst, asked):
    clock = Clock()
    bucket = bucket_of(rate, burst, clock)
    granted = 0
    for pause, n in asked:
        clock.now += pause
        granted += n if wait_of(bucket, "app", n) == 0 else 0
        assert granted <= (burst + rate * clock.now) * (1 + 1e-9) + 1e-3


def test_keys_that_stay_keep_what_they_have_spent_when_others_change():
    stays, goes, grows = (IngestKey(sha256=digit * 64, burst=5) for digit in "012")
    quotas = quotas_of({"stays": stays, "goes": goes, "grows": grows})
    for name in ("stays", "goes", "grows"):
        assert wait_of(quotas, name, 5) == 0
    larger = grows.model_copy(update={"burst": 6})
    quotas.use({"stays": stays, "grows": larger, "comes": goes})
    assert wait_of(quotas, "stays", 1) > 0
    assert wait_of(quotas, "grows", 6) == 0
    assert wait_of(quotas, "comes", 5) == 0
    # Who was let in before the key went is served to the end.
    assert wait_of(quotas, "goes", 5) == 0


@given(
    burst=st.integers(1, 200),
    asked=st.lists(st.integers(1, 200), max_size=30),
)
def test_batches_cost_more_than_their_reports_if_these_are_few(burst, asked):
    """So that ids, which fill memory and disk, are bounded by the quota, too."""
    quotas = quotas_of({"app": IngestKey(sha256="0" * 64, burst=burst)})
    took = [reports for reports in asked if wait_of(quotas, "app", reports) == 0]
    assert sum(took) <= burst
    assert len(took) <= max(1, burst / LEAST_CHARGE)
    # One that fits a full bucket is never refused for good.
    assert all(wait_of(quotas, "app", reports) < math.inf for reports in asked if reports <= burst)


def test_workers_share_the_rate_and_have_the_burst_each():
    clock = Clock()
    key = IngestKey(sha256="0" * 64, reports_per_second=100, burst=50)
    workers = [quotas_of({"app": key}, 4, clock) for _ in range(4)]
    assert [wait_of(quotas, "app", 50) for quotas in workers] == [0.0] * 4
    assert wait_of(workers[0], "app", 25) == pytest.approx(1)
    clock.now += 1
    assert [wait_of(quotas, "app", 25) for quotas in workers] == [0.0] * 4
    assert all(wait_of(quotas, "app", 1) > 0 for quotas in workers)


def test_each_further_slice_of_a_metric_costs_as_much_as_a_batch():
    quotas = quotas_of({"app": IngestKey(sha256="0" * 64, burst=1000)})
    assert wait_of(quotas, "app", 64, sections=64) == 0
    assert wait_of(quotas, "app", 1000 - 64 * LEAST_CHARGE + 1) > 0
    quotas = quotas_of({"small": IngestKey(sha256="0" * 64, burst=50)})
    assert wait_of(quotas, "small", 64, sections=64) == math.inf  # more reports than the burst
    assert wait_of(quotas, "small", 20, sections=20) == 0
