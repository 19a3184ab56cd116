"""Through a network that loses, cuts, delays and crumbles, every report counts exactly once."""

import contextlib

import pytest

from hubbub.client import Telemetry
from programs import forked_collector
from service.fault_proxy import Fault, fault_proxy
from service.loads import Accounts, Load, stored_in
from service.posting import SECONDS, stored_records, wait_until

pytestmark = pytest.mark.long

_FAULTS_OF_EACH_KIND = 5
_RECORDED = 100


def test_poster_that_retries_is_counted_once_through_a_bad_network(metrics_file, any_store_url):
    accounts = Accounts()

    def is_enough() -> bool:
        """All faults were met, and answers were lost of batches that had been stored."""
        met = all(proxy.faults[fault] >= _FAULTS_OF_EACH_KIND for fault in Fault)
        return met and load.statuses[200] > 0

    with (
        forked_collector(metrics_file, any_store_url) as collector,
        fault_proxy(collector.url, seed=1) as proxy,
        Load(proxy.url, accounts) as load,
    ):
        wait_until(is_enough)
        load.finish()
    accounts.assert_all_counted_once(stored_in(any_store_url))


def test_client_is_counted_once_through_a_bad_network(metrics_file, collector, database, tmp_path):
    with fault_proxy(collector.url, seed=2) as proxy:
        telemetry = Telemetry(metrics_file, proxy.url, tmp_path / "client", batch_size=10)
        with contextlib.closing(telemetry):
            for _ in range(_RECORDED):
                telemetry.record("homepage", "news.example.org")
            assert telemetry.flush(2 * SECONDS)
        assert sum(proxy.faults.values()) > 0
    stored = stored_records(database)
    # Two reports are alike with probability below 1e-26: the bits are noisy.
    assert (len(stored), len(set(stored))) == (_RECORDED, _RECORDED)
