"""Alerts wait for no series: all that they ask for is there from a collector's start on.

Whether they fire, Prometheus' own engine tells (`make test-alerts`); this needs none.
"""

import re

import pytest

from alerts.faults import BUILD, FAULTS, published
from deploy_files import alerts, labels_of, metrics_in, missing_series

_RULES = {rule["alert"]: rule for rule in alerts()}
_UP = 'up{job="hubbub-collector"}'


def test_every_alert_has_a_fault_that_fires_it_and_no_other():
    assert list(FAULTS) == list(_RULES)


@pytest.mark.parametrize("alert", _RULES)
def test_alert_asks_for_series_that_are_there_from_the_start(alert):
    expression = _RULES[alert]["expr"]
    assert metrics_in(expression) or expression.startswith(_UP)
    assert missing_series(expression, published()) == []


@pytest.mark.parametrize("alert", FAULTS)
def test_fault_moves_a_series_of_its_alert_that_is_there_from_the_start(alert):
    assert FAULTS[alert].keys() <= published().keys() | {_UP, BUILD % "b"}
    moved = {labels_of(series)["__name__"] for series in FAULTS[alert]}
    assert moved & (metrics_in(_RULES[alert]["expr"]) | {"up"})


@pytest.mark.parametrize("alert", _RULES)
def test_alerts_use_only_series_that_exist(alert):
    """A label that no series has would be empty in its text, and group nothing."""
    rule = _RULES[alert]
    labels = {"instance", "job"}.union(*map(labels_of, published()))
    named = re.findall(r"(?:by|ignoring) \(([^)]*)\)", rule["expr"])
    grouped = {label.strip() for names in named for label in names.split(",")}
    assert grouped <= labels
    shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert shown <= (grouped or labels)


@pytest.mark.parametrize(
    ("selector", "is_missed"),
    [
        ('hubbub_requests_total{status="201",reason!="duplicate"}', False),
        ('hubbub_requests_total{status="200",reason!="duplicate"}', True),
        ('hubbub_requests_total{status=~"4..",reason="quota"}', False),
        ('hubbub_requests_total{status!~"4..",reason="quota"}', True),
        ('hubbub_shed_total{metric="homepage"}', True),
        ("hubbub_misspelt_total", True),
    ],
)
def test_series_that_is_not_there_is_missed(selector, is_missed):
    asked = f"sum(rate({selector}[5m])) / sum(rate(hubbub_requests_total[5m])) > 1"
    assert missing_series(asked, published()) == [selector] * is_missed
