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

from alerts.faults import FAULTS, GROWING, REQUESTS, published
from deploy_files import FOLDER

PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
HOURS = 30
INTERVAL = "5m"
"""Of the series and of the rules, which would take five times as long at every minute."""
_STEPS = HOURS * 12


def firing(tmp_path, changes, hours=HOURS):
    """Return the alerts that fire after some hours."""
    series = {name: f"{value}+0x" for name, value in published().items()}
    series['up{job="hubbub-collector"}'] = "1+0x"
    assert GROWING.keys() <= series.keys()
    series |= {name: f"0+{step}x" for name, step in GROWING.items()}
    for name, change in changes.items():
        series[name] = change if isinstance(change, str) else f"{change}+0x"
    inputs = [
        {"series": _of_instance(name), "values": f"{values}{_STEPS}"}
        for name, values in series.items()
    ]
    question = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{hours}h"}
    test = {"interval": INTERVAL, "input_series": inputs, "promql_expr_test": [question]}
    file = {
        "evaluation_interval": INTERVAL,
        "rule_files": [str(FOLDER / "alerts.yaml")],
        "tests": [test],
    }
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


@pytest.mark.parametrize("alert", FAULTS)
def test_alert_fires_at_its_fault_and_no_other_does(tmp_path, alert):
    assert firing(tmp_path, FAULTS[alert]) == {alert}


def test_nothing_arrives_is_reported_hours_after_a_start(tmp_path):
    assert firing(tmp_path, FAULTS["HubbubNothingArrives"], 3) == {"HubbubNothingArrives"}


def test_nothing_arrives_is_reported_after_a_restart(tmp_path):
    faults = dict.fromkeys(FAULTS["HubbubNothingArrives"], f"0+1000x12 0x{_STEPS} 0x")
    assert firing(tmp_path, faults, 3) == set()
    assert firing(tmp_path, faults, 5) == {"HubbubNothingArrives"}


@pytest.mark.parametrize(
    ("alert", "series", "burst"),
    [
        ("HubbubFailing", REQUESTS % ("store", 503), 600),
        ("HubbubUpkeepFailing", 'hubbub_upkeep_runs_total{result="failed",task="merge"}', 12),
    ],
)
def test_first_burst_of_failures_after_a_start_is_seen(tmp_path, alert, series, burst):
    """A series that began with it would show no rise."""
    assert firing(tmp_path, {series: f"0x{_STEPS - 4} {burst}x"}) == {alert}
