"""metrics.toml: what is read, and that every mistake is named where it stands."""

import datetime as dt
import re
from pathlib import Path

import pytest

from factories import make_metric, make_params, make_registry, registry_toml
from hubbub.client import MetricError, Registry, UnknownMetricError, check_compatible
from hubbub.protocol import OpenStringType, OrdinalType

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "metrics.toml"


def test_registry_of_the_readme_is_read():
    metric = Registry.load(EXAMPLE)["homepage"]
    assert metric.params == make_params(k=424, h=1, m=96, f=0.2, p=0.0683, q=0.5534)
    assert metric.application == "com.example.browser"
    assert metric.expires == dt.date(2027, 12, 31)


def test_registry_is_a_mapping_of_its_metrics():
    registry = make_registry(make_metric("search"), make_metric("homepage", version=3))
    assert set(registry) == {"homepage", "search"}
    assert len(registry) == 2
    assert registry["homepage"].version == 3


def test_unknown_metric_lists_the_known_ones():
    with pytest.raises(UnknownMetricError) as caught:
        make_registry()["hompage"]
    assert str(caught.value) == "metric 'hompage': must be one of: homepage"


@pytest.mark.parametrize(
    ("content", "fault"),
    [(None, "can't be read: No such file or directory"), (b"\xff\xfe", "must be UTF-8 text")],
)
def test_unreadable_file_is_named(tmp_path, content, fault):
    path = tmp_path / "metrics.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MetricError, match=rf"metrics\.toml: {fault}"):
        Registry.load(path)


def test_change_of_parameters_needs_a_new_version():
    old, changed = make_registry(), make_metric(params=make_params(f=0.25))
    with pytest.raises(MetricError, match="version must be greater than 1"):
        check_compatible(old, make_registry(changed))
    check_compatible(old, make_registry(make_metric(version=2, params=make_params(f=0.25))))


def test_version_never_goes_down():
    with pytest.raises(MetricError, match=r"metrics\.homepage\.version = 1: must be at least 2"):
        check_compatible(make_registry(make_metric(version=2)), make_registry())


def test_application_never_changes():
    with pytest.raises(MetricError, match=r"must stay 'com\.example\.browser'"):
        check_compatible(make_registry(), make_registry(make_metric(application="other")))


def test_metrics_may_come_go_and_be_described_again():
    old = make_registry(make_metric("homepage"), make_metric("search"))
    later = make_metric("homepage", expires=dt.date(2100, 1, 1))
    check_compatible(old, make_registry(later, make_metric("settings")))


def test_memory_by_periods_is_part_of_the_definition():
    weekly = make_registry(make_metric(period_days=7))["homepage"]
    assert (weekly.memory, weekly.period_days, weekly.max_periods) == ("period", 7, 100)
    assert weekly.reserve == 100 * weekly.epsilon_permanent
    assert "memory" not in make_metric().definition
    with pytest.raises(MetricError, match="version must be greater than 1"):
        check_compatible(make_registry(), make_registry(weekly))


def test_periods_are_the_same_for_all_clients():
    weekly = make_metric(period_days=7)
    week = 7 * 86_400.0
    assert [weekly.period(t) for t in (0.0, week - 1, week, 10 * week)] == [0, 0, 1, 10]


def test_budget_left_for_changes_never_falls():
    """Or a first answer would be refused to clients whose answers changed often."""
    price = make_metric().price
    old = make_registry(make_metric(), lifetime_epsilon=3 * price)
    both = (make_metric(), make_metric("search"))
    check_compatible(old, make_registry(*both, lifetime_epsilon=4 * price))
    check_compatible(old, make_registry(*both))
    with pytest.raises(MetricError, match=f"must be at least {4 * price:.6g}"):
        check_compatible(old, make_registry(*both, lifetime_epsilon=3 * price))
    newer = make_metric(version=2)
    with pytest.raises(MetricError, match="price of each new metric and version"):
        check_compatible(old, make_registry(newer, lifetime_epsilon=3 * price))
    check_compatible(old, make_registry(newer, lifetime_epsilon=4 * price))


@pytest.mark.parametrize(
    "number", ["1" + "0" * 400, "-1" + "0" * 400, "1" + "0" * 5_000, "1e999", "nan", "-inf"]
)
def test_numbers_that_no_float_holds_are_refused_wherever_they_stand(number):
    """As a value, or as one of a list; 4,300 digits are more than Python reads."""
    text = registry_toml(
        make_metric(),
        make_metric("tabs", metric_type=OrdinalType((1.0, 2.0)), period_days=7),
        make_metric("words", metric_type=OpenStringType((4, 7), 64)),
        lifetime_epsilon=10.0,
    )
    places = list(re.finditer(r"(?m)^\w+ = ([\d.]+|\[[\d., ]+\])$", text))
    assert len(places) > 20
    for place in places:
        for found in (number, f"[{number}]"):
            with pytest.raises(MetricError):
                Registry.parse(text[: place.start(1)] + found + text[place.end(1) :])
