"""Maintenance beside a collector under load: the commands as they are run by hand or by cron."""

import pytest

from factories import make_metric, registry_toml
from programs import forked_collector
from service.commands import run_collector_command
from service.loads import Accounts, Load, assert_delivered, send_all_again, stored_in
from service.posting import make_batch, post

pytestmark = pytest.mark.long


def test_every_report_counts_once_while_others_maintain_the_store(metrics_file, any_store_url):
    accounts = Accounts()
    with forked_collector(metrics_file, any_store_url) as collector:
        with Load(collector.url, accounts, connections=4, pause=0.005) as load:
            for _ in range(4):
                load.wait_for(20)
                said = _command("maintain", "--store", any_store_url)
                assert said.startswith("merged ")
            load.finish()
        assert_delivered(any_store_url, accounts)
        _command("maintain", "--store", any_store_url)
        assert_delivered(any_store_url, accounts)
        # What was merged is known as before.
        assert set(send_all_again(collector.url, accounts.made)) == {200}


def test_metric_is_deleted_under_load_and_its_version_stays_taken(metrics_file, any_store_url):
    search = make_metric("search")
    metrics_file.write_text(registry_toml(make_metric(), search), encoding="utf-8")
    accounts = Accounts()
    with forked_collector(metrics_file, any_store_url) as collector:
        with Load(collector.url, accounts, connections=4, pause=0.005) as load:
            for _ in range(5):
                assert post(collector.url, make_batch(7, search)).status == 201
            load.wait_for(20)
            said = _command("delete", "search", "--yes", "--store", any_store_url)
            assert said == "deleted 35 reports of search\n"
            load.finish()
        assert stored_in(any_store_url, search) == []
        assert_delivered(any_store_url, accounts)
    changed = registry_toml(make_metric(), search).replace("f = 0.5", "f = 0.25")
    metrics_file.write_text(changed, encoding="utf-8")
    refused = run_collector_command(
        "serve", "--metrics", str(metrics_file), "--store", any_store_url, "--port", "0"
    )
    assert refused.returncode != 0
    assert "need a new version" in refused.stderr


def _command(*arguments: str) -> str:
    done = run_collector_command(*arguments)
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout
