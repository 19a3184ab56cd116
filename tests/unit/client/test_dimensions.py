"""Slices: one text for each combination of an app's dimensions, and never one of few reports."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from hubbub.client import Encoder
from hubbub.client.encoder import SECRET_BYTES
from hubbub.protocol import (
    LONGEST_SLICE,
    MOST_SLICES,
    Dimension,
    MetricError,
    Registry,
    check_compatible,
    is_slice,
    longest_slice,
    parse_slice,
    pooled,
    slice_of,
)

_PLATFORM = Dimension("platform", ("windows", "mac", "linux"))
_RELEASE = Dimension("release", pattern=r"\d+\.\d+")
_ARM = Dimension("arm", ("control", "treatment"))
_ALL = (_PLATFORM, _RELEASE, _ARM)

_REGISTRY = r"""
application = "org.example"

[dimensions]
platform = ["windows", "mac", "linux"]
release = { pattern = '\d+\.\d+' }
arm = ["control", "treatment"]

[metrics.crash]
version = 1
type = "boolean"
description = "Whether it crashed"
owner = "a@example.org"
expires = 2031-01-01
mode = "once"
period_days = 7
p = 0.25
q = 0.75
"""

_dimensions = st.permutations(_ALL).flatmap(
    lambda order: st.integers(1, 3).map(lambda count: tuple(order[:count]))
)
_values = st.fixed_dictionaries(
    {},
    optional={
        "platform": st.sampled_from(["windows", "mac", "beos", "other"]),
        "release": st.from_regex(r"[0-9]\.[0-9]", fullmatch=True) | st.just("nightly"),
        "arm": st.sampled_from(["control", "treatment"]),
        "unheard": st.just("x"),
    },
)


def _registry(metric: str = "", dimensions: str | None = None) -> Registry:
    text = _REGISTRY if dimensions is None else _REGISTRY.replace(*_table(dimensions))
    return Registry.parse(text + metric)


def _table(dimensions: str) -> tuple[str, str]:
    return _REGISTRY[_REGISTRY.index("[dim") : _REGISTRY.index("[metrics")], dimensions + "\n"


@given(_dimensions, _values)
def test_slice_has_one_text_that_names_its_dimensions(dimensions, values):
    text = slice_of(dimensions, values)
    assert is_slice(text)
    assert len(text) <= longest_slice(dimensions) <= LONGEST_SLICE
    assert slice_of(dimensions, parse_slice(text)) == text
    told = {d.name: values[d.name] for d in dimensions if d.has(values.get(d.name, "other"))}
    assert parse_slice(text) == told


@given(
    _dimensions,
    st.dictionaries(_values.map(lambda v: slice_of(_ALL, v)), st.integers(1, 400), max_size=90),
    st.integers(1, 500),
)
def test_pooled_slices_are_large_and_few_and_lose_no_report(dimensions, reports, least):
    goes = pooled(reports, dimensions, least)
    assert goes.keys() == reports.keys()
    sizes: Counter[str] = Counter()
    for text, into in goes.items():
        sizes[into] += reports[text]
        assert parse_slice(into).items() <= parse_slice(text).items()
    assert all(size >= least for into, size in sizes.items() if into)
    assert len(set(sizes) - {""}) <= MOST_SLICES
    assert pooled(sizes, dimensions, least) == {into: into for into in sizes}


def test_the_least_important_dimension_becomes_other_first():
    reports = {
        "platform=mac,release=1.0": 500,
        "platform=mac,release=9.9": 60,
        "platform=mac,release=9.8": 70,
        "platform=linux,release=1.0": 20,
        "release=1.0": 90,
    }
    assert pooled(reports, (_PLATFORM, _RELEASE), 100) == {
        "platform=mac,release=1.0": "platform=mac,release=1.0",
        "platform=mac,release=9.9": "platform=mac",
        "platform=mac,release=9.8": "platform=mac",
        "platform=linux,release=1.0": "",
        "release=1.0": "",
    }


def test_of_very_many_releases_the_largest_stay():
    reports = {f"release=1.{minor}": 1000 + minor for minor in range(MOST_SLICES + 30)}
    goes = pooled(reports, (_RELEASE,), 100)
    assert {text for text, into in goes.items() if into == ""} == {
        f"release=1.{minor}" for minor in range(30)
    }


def test_reports_beyond_the_slice_limit_lose_dimensions_not_values():
    reports = {
        f"platform={platform},release=1.{minor}": 1000 + minor
        for platform in ("mac", "linux", "windows")
        for minor in range(30)
    }
    goes = pooled(reports, (_PLATFORM, _RELEASE), 100)
    assert len(set(goes.values())) <= MOST_SLICES
    assert all(into.startswith(text.split(",")[0]) for text, into in goes.items())


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("", True),
        ("platform=mac", True),
        ("platform=mac,release=1.2-rc_3", True),
        ("platform=", False),
        ("platform=mac,", False),
        ("platform=mac;arm=a", False),
        ("Platform=mac", False),
        ("platform=m\n", False),
        (f"a={'x' * 33}", False),
        (f"a={'x' * 32}", True),
        (",".join(["b=bbbbbbbb", *(f"a{i}={'x' * 32}" for i in range(5))]), True),  # 190 characters
        (",".join(["b=bbbbbbbbb", *(f"a{i}={'x' * 32}" for i in range(5))]), False),
    ],
)
def test_slices_of_other_forms_are_none(text, is_one):
    assert is_slice(text) == is_one


def test_metric_lists_its_dimensions_in_its_own_order():
    registry = _registry('dimensions = ["arm", "platform"]\nmin_reports = 50\n')
    crash = registry["crash"]
    assert [dimension.name for dimension in crash.dimensions] == ["arm", "platform"]
    assert crash.min_reports == 50
    assert crash.slice_as("platform=mac,release=1.0,arm=control") == "arm=control,platform=mac"
    assert crash.slice_as("platform=beos") == ""
    told = registry.with_dimensions({"platform": "mac", "release": "1.0", "arm": "treatment"})
    report = Encoder(told["crash"], bytes(SECRET_BYTES)).encode(True)
    assert report.slice == "arm=treatment,platform=mac"


def test_dimensions_need_no_new_version():
    check_compatible(_registry(), _registry('dimensions = ["arm"]\n'))
    check_compatible(_registry('dimensions = ["arm"]\n'), _registry())


def test_an_unlisted_dimension_value_is_other_but_raises_in_development():
    registry = _registry('dimensions = ["platform"]\n')
    assert registry.with_dimensions({"platform": "Mac"})["crash"].slice == ""
    assert registry.with_dimensions({"platform": "other"}, strict=True)["crash"].slice == ""
    with pytest.raises(MetricError, match=r"dimensions.platform = 'Mac': must be windows, mac"):
        registry.with_dimensions({"platform": "Mac"}, strict=True)
    with pytest.raises(MetricError, match="dimensions = 'device': must be one of: platform, rel"):
        registry.with_dimensions({"device": "phone"})
    with pytest.raises(MetricError, match=r"dimensions.platform = 3: must be"):
        registry.with_dimensions({"platform": 3})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("dimensions", "metric", "field"),
    [
        ("dimensions = 3", "", "dimensions"),
        ("[dimensions]\nplatform = []", "", "dimensions.platform"),
        ('[dimensions]\nplatform = ["mac", "mac"]', "", "dimensions.platform"),
        ('[dimensions]\nplatform = ["mac", "other"]', "", "dimensions.platform"),
        ('[dimensions]\nplatform = ["a b"]', "", "dimensions.platform"),
        ('[dimensions]\nPlatform = ["mac"]', "", "dimensions.Platform"),
        (f"[dimensions]\nplatform = ['{33 * 'x'}']", "", "dimensions.platform"),
        (f"[dimensions]\nplatform = {[f'v{i}' for i in range(64)]}", "", "dimensions.platform"),
        ("[dimensions]\nrelease = { pattern = '(a+)+' }", "", "dimensions.release.pattern"),
        ("[dimensions]\nrelease = { pattern = '[z-a]' }", "", "dimensions.release.pattern"),
        ("[dimensions]\nrelease = { pattern = 'a*a*a*a*a*' }", "", "dimensions.release.pattern"),
        ("[dimensions]\nrelease = { pattern = 'a|b' }", "", "dimensions.release.pattern"),
        (f"[dimensions]\nrelease = {{ pattern = '{65 * 'a'}' }}", "", "dimensions.release.pattern"),
        ("[dimensions]\nrelease = { glob = '1.*' }", "", "dimensions.release"),
        (None, 'dimensions = ["device"]', "metrics.crash.dimensions"),
        (None, 'dimensions = ["arm", "arm"]', "metrics.crash.dimensions"),
        (None, "dimensions = []", "metrics.crash.dimensions"),
        (None, "min_reports = 0", "metrics.crash.min_reports"),
        (None, "min_reports = 9", "metrics.crash.min_reports"),
        (
            f"[dimensions]\na = {[f'v{i}' for i in range(9)]}\nb = {[f'v{i}' for i in range(6)]}",
            'dimensions = ["a", "b"]',
            "metrics.crash.dimensions",
        ),
    ],
)
def test_dimensions_of_other_forms_are_refused_by_their_field(dimensions, metric, field):
    with pytest.raises(MetricError) as caught:
        _registry(metric, dimensions)
    assert [fault.field for fault in caught.value.faults] == [field]


@pytest.mark.parametrize(
    "dimensions",
    [
        f"platform = ['{32 * 'x'}']",
        f"platform = {[f'v{i}' for i in range(63)]}",
        "release = { pattern = 'a*a*a*a*' }",
        f"release = {{ pattern = '{64 * 'a'}' }}",
        f"a = {[f'v{i}' for i in range(7)]}\nb = {[f'v{i}' for i in range(7)]}",
    ],
)
def test_dimensions_at_their_limits_are_taken(dimensions):
    name, *others = (line.split(" = ")[0] for line in dimensions.splitlines())
    registry = _registry(f"dimensions = {[name, *others]}\n", f"[dimensions]\n{dimensions}")
    assert [dimension.name for dimension in registry["crash"].dimensions] == [name, *others]
