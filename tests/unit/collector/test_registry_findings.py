"""What `hubbub-collector check` tells: faults, what ends, what a change costs."""

import datetime as dt
import re

import pytest
from click.testing import CliRunner

from factories import make_metric, make_params, make_registry
from hubbub.collector import changes, main
from hubbub.protocol import Registry
from hubbub.reporting import END_CODES, registry_ends

_TODAY = dt.date(2027, 3, 14)
_THEME = """application = "com.example.app"

[metrics.theme]
version = 1
type = "enum"
categories = [
  "light",  # ] is no end
  "dark",
]
description = "Colour theme"
owner = "design@example.com"
expires = 2027-04-13
f = 0.5
p = 0.25
q = 0.75
"""
_FAULTS = """application = "com.example.app"
lifetime_epsilon = -1

[metrics.theme]
verison = 1
type = "enum"
categories = [
  "light",
]
description = "Colour theme"
owner = "design@example.com"
expires = "2027-04-13"
f = 0.5
p = 0.5
q = 0.5

[metrics.host]
version = 1
type = "strnig"
description = "Host"
owner = ""
expires = 2027-04-13
k = 100

[metrics.both]
type = "joint"
description = "Both"
owner = "design@example.com"
expires = 2027-04-13
f = 0.5
p = 0.25
q = 0.75

[[metrics.both.fields]]
name = "a"
type = "boolean"

[[metrics.both.fields]]
name = "b"
type = "bolean"

[metrics.close]
version = 0
type = "boolean"
description = "Whether it is"
owner = "design@example.com"
expires = 2027-04-13
f = 0.5
p = 0.75
q = 0.75

[groups.all]
metrics = ["theme", "hots"]
choise = "life"
"""


def run(tmp_path, text, old=None):
    (tmp_path / "metrics.toml").write_text(text, newline="")
    arguments = ["check", str(tmp_path / "metrics.toml")]
    if old is not None:
        (tmp_path / "old.toml").write_text(old)
        arguments += ["--against", str(tmp_path / "old.toml")]
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout.replace(f"{tmp_path}/", "")


def errors(told):
    return re.findall(r"metrics\.toml: error: (.*)", told)


def test_all_faults_of_single_keys_are_reported_at_once(tmp_path):
    code, told = run(tmp_path, _FAULTS)
    found = "\n".join(errors(told))
    assert (code, len(errors(told))) == (1, 12)
    for words in (
        "did you mean 'version'?",
        "a list of 2 to 4096 texts",
        "did you mean 'string'?",
        "did you mean 'host'?",
        "fields[1].type = 'bolean'",
        "did you mean 'choice'?",
    ):
        assert words in found


def test_changed_definition_is_reported_by_its_fields(tmp_path):
    new = _THEME.replace('"dark"', '"black"').replace("p = 0.25", "p = 0.3")
    code, told = run(tmp_path, new, old=_THEME)
    assert code == 1
    words = "changed without 'dark', with 'black'; p from 0.25 to 0.3"
    assert (
        f"metrics.toml: error: metrics.theme.categories: {words}; version must be greater than 1"
        in told
    )
    code, told = run(tmp_path, new.replace("black", "dark"), old=_THEME)
    assert "metrics.theme.p: changed from 0.25 to 0.3; version must be" in told


@pytest.mark.parametrize("ends_with", ["\n", "\r\n"])
def test_fault_of_several_keys_is_reported_once(tmp_path, ends_with):
    text = _THEME.replace("p = 0.25", "p = 0.75").replace("\n", ends_with)
    code, told = run(tmp_path, text)
    assert (code, "metrics.toml: error: metrics.theme.p = q = 0.75" in told) == (1, True)


def test_a_mode_that_is_misspelt_is_the_only_fault(tmp_path):
    once = 'mode = "onc"\nperiod_days = 7'
    code, told = run(tmp_path, _THEME.replace("f = 0.5", f"f = 0.5\n{once}"))
    assert code == 1
    assert re.findall(r"error: metrics\.theme\b(.*)", told) == [
        ".mode = 'onc': must be one of: longitudinal, one-time, once (did you mean 'once'?)"
    ]


def test_invalid_toml_is_reported_with_its_line(tmp_path):
    code, told = run(tmp_path, _THEME.replace("f = 0.5", "f = = 0.5"))
    assert code == 1
    assert re.match(r"metrics\.toml: error: not valid TOML: .*line 13", told)


def test_registry_in_order_is_no_fault_though_it_ends_soon(tmp_path):
    soon = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=3)
    code, told = run(tmp_path, _THEME.replace("2027-04-13", str(soon)))
    assert (code, "metrics.toml: warning: metrics.theme: expires on" in told) == (0, True)


@pytest.mark.parametrize(
    ("keys", "is_warned_of"),
    [
        ('dimensions = ["platform"]', True),
        ("", False),
        ('dimensions = ["platform"]\nreports_per_day = 1', False),
        ('dimensions = ["platform"]\nmode = "once"\nperiod_days = 7', False),
        ('dimensions = ["platform"]\nmode = "one-time"', False),
    ],
)
def test_dimensions_of_what_a_client_repeats_at_will_are_warned_of(tmp_path, keys, is_warned_of):
    dimensions = '\n[dimensions]\nplatform = ["mac", "linux"]\n'
    noise = "f = 0.5\n" if "mode" in keys else "f = 0.5\np = 0.25\nq = 0.75\n"
    minimum = "\nmin_reports = 77" if keys else ""
    text = _THEME.replace("f = 0.5\np = 0.25\nq = 0.75\n", noise + keys + minimum)
    code, told = run(tmp_path, text + dimensions)
    warning = "toml: warning: metrics.theme: has dimensions, and a client may report it many times"
    assert (code, warning in told, "77 reports" in told) == (0, is_warned_of, is_warned_of)


def test_registry_that_asks_nothing_any_more_is_a_fault(tmp_path):
    code, told = run(tmp_path, _THEME.replace("2027-04-13", "2020-01-01"))
    assert code == 1
    assert "error: metrics: clients report nothing" in told


def found(text, today=_TODAY):
    return {finding.code: finding.value for finding in registry_ends(Registry.parse(text), today)}


def test_metric_is_asked_up_to_its_last_day():
    assert found(_THEME, dt.date(2027, 3, 13)) == {}
    assert found(_THEME, _TODAY) == {"metric_expires_soon": 30}
    assert found(_THEME, dt.date(2027, 4, 13)) == {"metric_expires_soon": 0}
    after = found(_THEME, dt.date(2027, 4, 14))
    assert after == {"metric_expired": -1, "nothing_asked": 1}


def test_budget_below_the_price_of_an_answer_asks_nothing():
    price = Registry.parse(_THEME)["theme"].price
    enough = found(f"lifetime_epsilon = {price!r}\n{_THEME}", dt.date(2027, 1, 1))
    assert enough == {}
    short = found(f"lifetime_epsilon = {price * 0.999!r}\n{_THEME}", dt.date(2027, 1, 1))
    assert short.keys() == {"metric_over_budget", "nothing_asked"}
    assert short.keys() < set(END_CODES)


def changed(old, new):
    return {it.code: it for it in changes(Registry.parse(old), Registry.parse(new))}


def test_new_words_need_no_version_and_cost_nothing():
    told = changed(_THEME, _THEME.replace("Colour theme", "The colour theme, for its defaults"))
    assert told.keys() == {"metric_kept"}
    assert "version 1 may stay" in told["metric_kept"].text
    assert told["metric_kept"].value == 0


def test_other_noise_under_the_same_version_is_refused_and_as_a_new_one_spends_again():
    other = _THEME.replace("f = 0.5", "f = 0.25")
    assert changed(_THEME, other).keys() == {"fault"}
    told = changed(_THEME, other.replace("version = 1", "version = 2"))
    assert told.keys() == {"version_raised"}
    assert told["version_raised"].value == Registry.parse(other)["theme"].price


def test_version_without_a_change_spends_for_nothing():
    told = changed(_THEME, _THEME.replace("version = 1", "version = 2"))
    assert told.keys() == {"version_unneeded"}


def test_all_faults_that_clients_refuse_are_reported_at_once(tmp_path):
    old = f"lifetime_epsilon = 90\n{_THEME}"
    new = old.replace("com.example.app", "com.example.other").replace("= 90", "= 20")
    code, told = run(tmp_path, new.replace("f = 0.5", "f = 0.25"), old)
    assert code == 1
    fields = ["application", "lifetime_epsilon", "metrics.theme.f"]
    assert sorted(re.split(r"[: ]", error)[0] for error in errors(told)) == fields


def test_a_new_version_costs_the_periods_that_are_left_and_values_again():
    once = make_metric("mood", params=make_params(f=0.0), mode="once", period_days=30)
    value = make_metric("theme")
    after = [metric._replace(version=2, description="Changed") for metric in (once, value)]
    found = {f.label: f.text for f in changes(make_registry(once, value), make_registry(*after))}
    assert "answer it from their next period on" in found["metrics.mood"]
    assert "at most 100 (max_periods)" in found["metrics.mood"]
    assert f"spend up to {value.price:.6g} again" in found["metrics.theme"]
