"""PostgreSQL stops, crashes and cuts connections under load, and the collector gets over it."""

import pytest

from hubbub.simulations import running_collector
from service.faults import processes_of, status_of
from service.loads import Accounts, Load, stored_in
from service.posting import wait_until

pytestmark = pytest.mark.long

_CUTS = 8


@pytest.mark.parametrize("at_once", [True, False], ids=["crash", "stop"])
def test_outage_of_the_database_is_survived_under_load(
    metrics_file, postgresql, postgresql_url, at_once
):
    accounts = Accounts()
    options = ["--workers", "2", "--upkeep-seconds", "0.5"]
    with (
        running_collector(metrics_file, postgresql_url, options) as collector,
        Load(collector.url, accounts, connections=4) as load,
    ):
        load.wait_for(20)
        processes = processes_of(collector)
        postgresql.stop(at_once=at_once)
        load.wait_for_status(503, 20)
        assert status_of(collector, "/livez") == 200
        wait_until(lambda: status_of(collector, "/readyz") == 503)
        postgresql.start()
        load.wait_for(20)
        wait_until(lambda: status_of(collector, "/readyz") == 200)
        load.finish()
        assert processes_of(collector) == processes
    accounts.assert_all_counted_once(stored_in(postgresql_url))


def test_connections_cut_amid_commits_lose_and_double_nothing(
    metrics_file, postgresql_server, postgresql_url
):
    accounts = Accounts()
    cut = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'hubbub'"
    )
    with (
        running_collector(metrics_file, postgresql_url, ["--upkeep-seconds", "0.2"]) as collector,
        Load(collector.url, accounts) as load,
    ):
        cuts = 0

        def cut_connections() -> bool:
            nonlocal cuts
            load.wait_for(20)
            cuts += int(postgresql_server.execute(cut, url=postgresql_url)) > 0
            return cuts >= _CUTS and load.statuses[503] > 0  # one at least was amid a commit

        wait_until(cut_connections)
        load.finish()
        assert status_of(collector, "/livez") == 200
    accounts.assert_all_counted_once(stored_in(postgresql_url))
