"""Every alert against Prometheus' own engine: silent while all is well, and firing at its fault.

Needs promtool (Debian's package prometheus): `make test-alerts`. The series are those that a
collector publishes from its first moment on, so an alert that would wait for one is found out.
"""

import json
import os
import re
import shutil
import subprocess

import pytest

from deploy_files import FOLDER, alerts
from factories import make_metric, make_registry
from hubbub.collector.operations.counters import CounterName
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.operations.publishing import Publisher
from hubbub.collector.operations.registry_findings import CODES

PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
HOURS = 30
_STEPS = HOURS * 12
REQUESTS = 'hubbub_requests_total{reason="%s",status="%s"}'
REPORTS = 'hubbub_reports_total{metric="homepage",version="1"}'
SUCCESS = 'hubbub_upkeep_last_success_timestamp_seconds{task="%s"}'
EXPIRY = 'hubbub_expiry_timestamp_seconds{name="main",type="%s"}'
BUILD = 'hubbub_build_info{registry="%s",schema="1",version="1"}'
GROWING = {
    REQUESTS % ("stored", 201): 100,
    REPORTS: 1000,
    "hubbub_commit_reports_sum": 1000,
    SUCCESS % "merge": 300,
    SUCCESS % "mix": 300,
}
"""What grows in five minutes while all is well; these tests' clock begins at 0, as upkeeps do."""
FACTS = {
    CounterName("build", ("1", "1", "a")): 1.0,
    CounterName("expiry", ("certificate", "main")): 1e9,
    CounterName("expiry", ("ingest_key", "main")): 1e9,
    CounterName("store_size"): 1e9,
    CounterName("store_free"): 1e12,
    CounterName("quarantine"): 0.0,
    CounterName("unmixed_days"): 0.0,
    **{CounterName("registry_findings", (code,)): 0.0 for code in CODES},
}
FAULTS = {
    "HubbubDown": {'up{job="hubbub-collector"}': 0},
    "HubbubFailing": {REQUESTS % ("store", 503): "0+5x"},
    "HubbubShedding": {'hubbub_shed_total{reason="shed_bytes"}': "0+600x"},
    "HubbubRefusing": {REQUESTS % ("key_expired", 401): "0+50x"},
    "HubbubKeyRefused": {'hubbub_key_refusals_total{key="a",reason="quota"}': "0+10x"},
    "HubbubCommitsSlow": {'hubbub_commit_seconds_bucket{le="+Inf"}': "0+9x"},
    "HubbubAnswersSlow": {'hubbub_request_seconds_bucket{le="+Inf"}': "0+9x"},
    "HubbubQueueLong": {"hubbub_queue_depth_batches": 600},
    "HubbubConnectionsNearlyUsedUp": {"hubbub_connections": 4000},
    "HubbubUpkeepStuck": {SUCCESS % "merge": 0},
    "HubbubUpkeepFailing": {'hubbub_upkeep_runs_total{result="failed",task="merge"}': "0+1x"},
    "HubbubIdsNotForgotten": {SUCCESS % "mix": 0},
    "HubbubDaysNotMixed": {"hubbub_unmixed_days": 2},
    "HubbubCertificateEnds": {EXPIRY % "certificate": 10 * 86_400},
    "HubbubKeyEnds": {EXPIRY % "ingest_key": 20 * 86_400},
    "HubbubMetricEnds": {'hubbub_registry_findings{code="metric_expires_soon"}': 1},
    "HubbubVersionsDiffer": {BUILD % "b": 1},
    "HubbubReloadFailed": {"hubbub_reload_failing": 1},
    "HubbubReportsImprobable": {'hubbub_improbable_reports_total{metric="homepage"}': "0+2x"},
    "HubbubManyDuplicates": {
        "hubbub_duplicate_batches_total": "0+50x",
        REQUESTS % ("duplicate", 200): "0+50x",
    },
    "HubbubNothingArrives": dict.fromkeys(
        (REQUESTS % ("stored", 201), REPORTS, "hubbub_commit_reports_sum"), 0
    ),
    "HubbubQuarantine": {"hubbub_quarantine_reports": 1},
    "HubbubStoreLarge": {"hubbub_store_size_bytes": 60e9},
    "HubbubDiskFull": {"hubbub_store_free_bytes": 1e9},
    "HubbubUncounted": {"hubbub_uncounted_total": "0+1x"},
}
"""What makes each alert fire, and no other."""


def published():
    """Return the series of a collector that has just started."""
    metrics = Metrics()
    metrics.begin(make_registry(make_metric(name="homepage")))
    metrics.connections(1)
    publisher = Publisher(metrics)
    publisher.facts = FACTS
    lines = publisher.exposition()[0].decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line.startswith("hubbub_"))


def firing(tmp_path, changes, hours=HOURS):
    """Return the alerts that fire after some hours."""
    series = {name: f"{value}+0x" for name, value in published().items()}
    series['up{job="hubbub-collector"}'] = "1+0x"
    assert GROWING.keys() - series.keys() <= {SUCCESS % "merge", SUCCESS % "mix"}
    series |= {name: f"0+{step}x" for name, step in GROWING.items()}
    for name, change in changes.items():
        series[name] = change if isinstance(change, str) else f"{change}+0x"
    inputs = [
        {"series": _of_instance(name), "values": f"{values}{_STEPS}"}
        for name, values in series.items()
    ]
    question = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{hours}h"}
    test = {"interval": "5m", "input_series": inputs, "promql_expr_test": [question]}
    file = {"rule_files": [str(FOLDER / "alerts.yaml")], "tests": [test]}
    (tmp_path / "test.yaml").write_text(json.dumps(file))
    done = promtool("test", "rules", tmp_path / "test.yaml")
    return set(re.findall(r'alertname="(\w+)"', done.stdout + done.stderr))


def _of_instance(series):
    name, _, labels = series.rstrip("}").partition("{")
    joined = ",".join(filter(None, [labels, 'instance="a"']))
    return f"{name}{{{joined}}}"


def promtool(*arguments):
    assert PROMTOOL, "promtool isn't installed (Debian's package prometheus)"
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)


def test_prometheus_takes_the_rules():
    done = promtool("check", "rules", FOLDER / "alerts.yaml")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("hours", [1, 4, HOURS])
def test_nothing_fires_while_all_is_well(tmp_path, hours):
    assert firing(tmp_path, {}, hours) == set()


def test_every_alert_has_a_fault():
    assert list(FAULTS) == [rule["alert"] for rule in alerts()]


@pytest.mark.parametrize("alert", FAULTS)
def test_alert_fires_at_its_fault_and_no_other_does(tmp_path, alert):
    assert firing(tmp_path, FAULTS[alert]) == {alert}


def test_nothing_arrives_is_told_hours_after_a_start(tmp_path):
    assert firing(tmp_path, FAULTS["HubbubNothingArrives"], 3) == {"HubbubNothingArrives"}


def test_first_burst_of_failures_after_a_start_is_seen(tmp_path):
    """A series that began with it would show no rise."""
    burst = {REQUESTS % ("store", 503): f"0x{_STEPS - 4} 600x"}
    assert firing(tmp_path, burst) == {"HubbubFailing"}
