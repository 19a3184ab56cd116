"""Decoding by what reports say of the app: --where, --by and the groups of compare."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

import pytest
from click.testing import CliRunner

from factories import make_metric, registry_toml
from hubbub.decoder import compare_metric, decode_metric
from hubbub.decoder.cli import main
from hubbub.decoder.comparing import group_source
from hubbub.decoder.reports import StoredReports, load_reports
from hubbub.inference import AnomalyDetector, UndecodableError
from hubbub.protocol import (
    Dimension,
    Metric,
    OptionError,
    Records,
    Registry,
    record_width,
    sample_step,
)
from hubbub.reporting import Estimates, Level
from hubbub.storage import MetricVersion, NewBatch, export_partitions, open_store, plan_export
from stored_metrics import DAYS, METRICS, reports_of

_SLICES = {
    "platform=mac,release=1.0": ("a", 2000),
    "platform=mac,release=1.1": ("b", 2000),
    "platform=linux,release=1.1": ("b", 1500),
    "platform=linux,release=9.9": ("c", 40),
}
_TABLES = """
[dimensions]
platform = ["mac", "linux"]
release = { pattern = '\\d\\.\\d' }
"""


class Sliced:
    """A store, and an export of it, whose reports of each slice have a value of their own."""

    def __init__(self, folder, name: str, values: dict[str, str]) -> None:
        metric, _, self.options = METRICS[name]
        self.registry = folder / "metrics.toml"
        text = registry_toml(metric) + 'dimensions = ["platform", "release"]\nmin_reports = 100\n'
        application, rest = text.split("\n", 1)
        self.registry.write_text(f"{application}\n{_TABLES}{rest}", encoding="utf-8")
        self.metric = Registry.load(self.registry)[metric.name]
        self.url = f"sqlite:///{folder}/a.db"
        self.export = f"parquet:{folder}/out"
        self.values = values
        asyncio.run(self._fill(folder / "out"))

    async def _fill(self, out) -> None:
        key, width = MetricVersion(self.metric.name, 1), record_width(self.metric.params.k)
        async with open_store(self.url, create=True) as store:
            await store.declare([self.metric])
            for day in DAYS[:2]:
                for number, (text, (value, n)) in enumerate(_SLICES.items()):
                    seed = 10 * day.day + number
                    records = _all_with(self.metric, self.values[value], seed, n)
                    own = {key._replace(slice=text): Records(width, records)}
                    await store.append([NewBatch(secrets.token_bytes(16), own)], day)
            async for _ in export_partitions(store, out, await plan_export(store)):
                pass

    def decode(self, **options: Any) -> Estimates:
        given: dict[str, Any] = {"metrics": self.registry, "store": self.url, "min_reports": 100}
        return decode_metric(self.metric.name, **(self.options | given | options))


def _all_with(metric: Metric, value: Any, seed: int, n: int) -> bytes:
    rows = reports_of(metric, value, seed, 2 * n)
    width = record_width(metric.params.k)
    starts = range(width, len(rows), 2 * width)
    return b"".join(rows[start : start + width] for start in starts)


@pytest.fixture(scope="module")
def themes(tmp_path_factory) -> Sliced:
    values = {"a": "a", "b": "b", "c": "c"}
    return Sliced(tmp_path_factory.mktemp("themes"), "enum", values)


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Sliced:
    values = {"a": "word 1", "b": "word 2", "c": "word 3"}
    return Sliced(tmp_path_factory.mktemp("words"), "string", values)


def _detected(estimates: Estimates) -> list[str]:
    rows = zip(estimates[estimates.keys[-1]], estimates["detected"], strict=True)
    return [name for name, detected in rows if detected]


def _reports(estimates: Estimates) -> object:
    return next(each.value for each in estimates.findings if each.code == "reports")


@pytest.mark.parametrize("place", ["url", "export"])
@pytest.mark.parametrize(
    ("where", "reports", "found"),
    [
        (None, 11_080, ["a", "b"]),
        ({"platform": "mac"}, 8_000, ["a", "b"]),
        ({"release": "1.0"}, 4_000, ["a"]),
        ({"platform": "mac", "release": ("1.1", "1.2")}, 4_000, ["b"]),
        ({"platform": ("mac", "linux"), "release": "1.1"}, 7_000, ["b"]),
    ],
)
def test_reports_are_chosen_by_what_they_say_of_the_app(themes, place, where, reports, found):
    estimates = themes.decode(where=where, store=getattr(themes, place))
    assert (_reports(estimates), _detected(estimates)[: len(found)]) == (reports, found)


def test_repeats_are_looked_for_in_all_chosen_reports_whatever_others_there_are(tmp_path):
    platform = Dimension("platform", ("mac", "linux"))
    metric = make_metric()._replace(dimensions=(platform,), min_reports=100)
    url, width = f"sqlite:///{tmp_path}/a.db", record_width(metric.params.k)
    others = 2**19
    assert sample_step(300 + others) > 1

    async def found() -> Any:
        async with open_store(url, create=True) as store:
            await store.declare([metric])
            for text, n in (("platform=mac", 300), ("platform=linux", others)):
                own = {MetricVersion("homepage", 1, text): Records(width, bytes(n * width))}
                await store.append([NewBatch(secrets.token_bytes(16), own)], DAYS[0])
        source = StoredReports(url, where={"platform": ("mac",)})
        return await load_reports(source, metric, detector=AnomalyDetector(metric))

    assert asyncio.run(found()).anomalies.repeats.sampled == 300


@pytest.mark.parametrize("method", ["regression", "likelihood"])
def test_strings_are_found_where_they_are(words, method):
    for release, word in (("1.0", "word 1"), ("1.1", "word 2")):
        estimates = words.decode(where={"release": release}, method=method, alpha=0.001)
        assert _detected(estimates) == [word]
        assert max(estimates["proportion"]) > 0.9


def test_small_slices_are_read_as_other_only(themes):
    with pytest.raises(UndecodableError, match=r"release=9\.9"):
        themes.decode(where={"release": "9.9"})
    # Not told apart by its platform, either: 40 reports of Linux' rarest release go with it.
    with pytest.raises(UndecodableError, match="release=other"):
        themes.decode(where={"release": "other"})


def test_by_dimension_is_each_value_decoded_by_itself(themes):
    both = themes.decode(by="release")
    assert both.keys == ("release", "category")
    assert both["release"] == ["1.0"] * 3 + ["1.1"] * 3
    for release in ("1.0", "1.1"):
        alone = themes.decode(where={"release": release})
        rows = [index for index, value in enumerate(both["release"]) if value == release]
        for column in alone.columns:
            assert repr([both[column][row] for row in rows]) == repr(list(alone[column]))
    [left_out] = [each for each in both.findings if each.code == "left_out:other"]
    assert "no reports" in left_out.text
    [others] = [each for each in both.findings if each.code == "other_share"]
    assert others.value == pytest.approx(80 / 11_080)
    assert _names_of(both.report()) >= {"release 1.0: Privacy", "release 1.1: Privacy", "Left out"}


def _names_of(page) -> set[str]:
    return {section.title for section in page.sections}


def test_days_of_a_slice(words):
    found = words.decode(by="day", where={"release": "1.0"}, method="regression")
    assert "word 1" in found["string"]
    assert set(found["day"]) == {str(day) for day in DAYS[:2]}


def test_two_slices_are_compared(themes):
    found = compare_metric(
        "theme", "release=1.0", "release=1.1", metrics=themes.registry, store=themes.url,
        where={"platform": "mac"}, min_reports=100,
    )  # fmt: skip
    groups: Any = found.metadata["comparison"]
    assert groups["control"] == "release=1.0"
    assert groups["treatment_reports"] == 4_000
    differs = dict(zip(found["category"], found["differs"], strict=True))
    assert differs == {"a": True, "b": True, "c": False}


def test_groups_are_compared_within_equal_dimensions(tmp_path):
    """Linux has few of the treatment: its control would be compared with nobody's.

    Everybody of Linux crashes, and nobody else: the arms don't differ.
    """
    arms = Dimension("arm", ("control", "treatment"))
    platform = Dimension("platform", ("windows", "linux"))
    metric = METRICS["enum"][0]._replace(dimensions=(platform, arms), min_reports=100)
    application, rest = registry_toml(METRICS["enum"][0]).split("\n", 1)
    registry = tmp_path / "metrics.toml"
    registry.write_text(
        f'{application}\n[dimensions]\nplatform = ["windows", "linux"]\n'
        f'arm = ["control", "treatment"]\n{rest}dimensions = ["platform", "arm"]\n'
    )
    sizes = {"windows,arm=control": 4500, "windows,arm=treatment": 500,
             "linux,arm=control": 850, "linux,arm=treatment": 94}  # fmt: skip

    async def fill() -> None:
        width, key = record_width(metric.params.k), MetricVersion("theme", 1)
        async with open_store(f"sqlite:///{tmp_path}/a.db", create=True) as store:
            await store.declare([metric])
            for seed, (text, n) in enumerate(sizes.items()):
                records = _all_with(metric, "b" if "linux" in text else "a", seed, n)
                own = {key._replace(slice=f"platform={text}"): Records(width, records)}
                await store.append([NewBatch(secrets.token_bytes(16), own)], DAYS[0])

    asyncio.run(fill())
    found = compare_metric(
        "theme", "arm=control", "arm=treatment", metrics=registry,
        store=f"sqlite:///{tmp_path}/a.db", min_reports=100,
    )  # fmt: skip
    groups: Any = found.metadata["comparison"]
    assert (groups["control_reports"], groups["treatment_reports"]) == (4500, 500)
    assert not any(found["differs"])
    [unmatched] = [each for each in found.findings if each.code == "unmatched"]
    assert unmatched.value == 850


def test_groups_of_other_sizes_than_assigned_are_a_warning(themes):
    def finding(ratio: float) -> Any:
        found = compare_metric(
            "theme", "platform=linux", "platform=mac", metrics=themes.registry, store=themes.url,
            where={"release": "1.1"}, min_reports=100, sample_ratio=ratio,
        )  # fmt: skip
        [said] = [each for each in found.findings if each.code == "sample_ratio"]
        return said

    assert finding(4 / 3).level is Level.FACT
    with pytest.warns(UserWarning, match="sample ratio"):
        said = finding(1.0)
    assert said.level is Level.WARNING
    assert "1.333 times the control's reports; 1 times were assigned" in said.text
    with pytest.raises(OptionError, match="sample_ratio=0: must be above 0"):
        finding(0)


def test_commands_take_the_same(themes, tmp_path):
    file = tmp_path / "found.json"
    fixed = [themes.metric.name, "--metrics", str(themes.registry), "--store", themes.url]
    fixed += ["--min-reports", "100"]
    run = CliRunner().invoke(
        main,
        ["decode", *fixed, "--by", "release", "--where", "platform=mac", "--output", str(file)],
    )
    assert run.exit_code == 0, run.output
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["by"] == "release"
    assert [row["release"] for row in document["rows"]] == ["1.0"] * 3 + ["1.1"] * 3
    assert document["slices"]["1.0"]["provenance"]["days"].endswith("platform=mac, release=1.0")
    run = CliRunner().invoke(
        main,
        [
            "compare",
            *fixed,
            "--control",
            "platform=mac",
            "--treatment",
            "platform=linux@..2026-11-02",
        ],
    )
    assert run.exit_code == 0, run.output
    assert "platform=linux, the first to 2026-11-02" in " ".join(run.output.split())


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            {"where": {"device": "x"}},
            "must be one of the dimensions of metrics.theme: platform, release",
        ),
        ({"where": {"platform": "Mac"}}, "must be one of mac, linux, other"),
        ({"where": {"release": "new"}}, r"must be one of other, or match \\d\\.\\d"),
        (
            {"by": "device"},
            "must be day, or one of the dimensions of metrics.theme: platform, release",
        ),
    ],
)
def test_undeclared_dimensions_are_refused(themes, options, fault):
    with pytest.raises(OptionError, match=fault):
        themes.decode(**options)


def test_groups_that_share_reports_are_refused(themes):
    def compare(control: str, treatment: str, **options: Any) -> Estimates:
        return compare_metric(
            "theme", control, treatment, metrics=themes.registry, store=themes.url, **options
        )

    with pytest.raises(OptionError, match="have reports in common"):
        compare("platform=mac", "release=1.1")
    with pytest.raises(OptionError, match="has platform, which"):
        compare("platform=mac", "platform=linux", where={"platform": "mac"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("arm=control", StoredReports("here", where={"arm": ("control",)})),
        ("2026-11-01..", StoredReports("here", DAYS[0])),
        (
            "arm=a,os=b@2026-11-01",
            StoredReports("here", DAYS[0], DAYS[0], {"arm": ("a",), "os": ("b",)}),
        ),
        ("parquet:out@arm=a", StoredReports("parquet:out", where={"arm": ("a",)})),
        (
            "postgresql://me:word@host/db@arm=a@..2026-11-02",
            StoredReports("postgresql://me:word@host/db", None, DAYS[1], {"arm": ("a",)}),
        ),
        ("postgresql://me:word@host/db", StoredReports("postgresql://me:word@host/db")),
        ("sqlite:///a=b.db", StoredReports("sqlite:///a=b.db")),
    ],
)
def test_group_names_its_reports(text, expected):
    assert group_source("control", text, "here") == expected
