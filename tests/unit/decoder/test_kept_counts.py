"""Reports and the counts made of them are decoded alike; what counts can't tell is said."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories import make_metric, make_params, registry_toml
from hubbub.collector.exchange.exporting import export_partitions, plan_export
from hubbub.collector.store import MetricVersion, NewBatch, open_store
from hubbub.decoder import decode_metric
from hubbub.decoder.candidates.listing import hashed
from hubbub.decoder.decoding import decode
from hubbub.decoder.errors import UndecodableError
from hubbub.decoder.likelihood.choice import Choice, Method
from hubbub.decoder.reports.anomalies import AnomalyDetector
from hubbub.decoder.reports.loading import Counting, load_counts, load_days
from hubbub.decoder.reports.packed import ReportSpool
from hubbub.decoder.results.result import Result
from hubbub.decoder.results.wording import anomaly_lines
from hubbub.protocol.counts import keep_counts
from hubbub.protocol.metric_types.booleans import BooleanType
from hubbub.protocol.metric_types.enums import EnumType
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.metric_types.ordinals import OrdinalType
from hubbub.protocol.metrics import Metric
from hubbub.protocol.records import Records, record_width
from unit.decoder.joint_tables import BY_SITE, enum_metric, noise
from unit.decoder.rendered import json_of

DAYS = [dt.date(2026, 11, day) for day in (1, 2, 3)]
NOISE = make_params(k=32, h=2, m=8, f=0.1, p=0.1, q=0.9)
LOUD = make_params(k=32, f=0.25, p=0.2, q=0.6)
WORDS = make_metric("words", params=NOISE)
NAMES = [f"word {number}" for number in range(20)]
METRICS: dict[str, tuple[Metric, Any, dict[str, Any]]] = {
    "string": (WORDS, "word 3", {"candidates": NAMES, "method": "regression"}),
    "string by day": (
        WORDS,
        "word 3",
        {"candidates": NAMES, "method": "regression", "by": "day"},
    ),
    "enum": (
        make_metric("theme", metric_type=EnumType(("a", "b", "c")), params=NOISE),
        "b",
        {},
    ),
    "boolean by day": (
        make_metric("dark", metric_type=BooleanType(), params=NOISE),
        True,
        {"by": "day"},
    ),
    "ordinal": (
        make_metric("age", metric_type=OrdinalType((10.0, 20.0, 30.0)), params=NOISE),
        15,
        {},
    ),
    "joint": (enum_metric((3, 2)), {"crash": "crash 1", "driver": "driver 0"}, {}),
    "hashed joint": (
        make_metric("sites", metric_type=BY_SITE, params=noise(4.0, k=64, m=8), one_time=True),
        {"site": "b.example", "secure": True},
        {"candidates": {"site": ["a.example", "b.example"]}},
    ),
    "open string": (
        make_metric("open", metric_type=OpenStringType((2, 4), 8), params=LOUD),
        "word",
        {"candidates": ["word", "none"]},
    ),
}


def reports_of(metric: Metric, value: Any, seed: int, n: int = 2_000) -> bytes:
    """Return records of clients of whom half have one value, and the others none."""
    rng, params = np.random.default_rng(seed), metric.params
    cohorts = rng.integers(0, params.m, n)
    true = [
        metric.type.bits(value, int(cohort), params) if number % 2 else 0
        for number, cohort in enumerate(cohorts)
    ]
    rows = np.array([list(bits.to_bytes(params.k // 8, "little")) for bits in true], dtype=np.uint8)
    is_set = np.unpackbits(rows, axis=1, bitorder="little") == 1
    bits = rng.random(is_set.shape) < np.where(is_set, params.q_star, params.p_star)
    packed = np.packbits(bits, axis=1, bitorder="little")
    return np.hstack([cohorts.astype("<u2")[:, None].view(np.uint8), packed]).tobytes()


class Stored:
    """A store of three days' reports of a metric, of which some can be counted."""

    def __init__(self, folder: Path, metric: Metric, value: Any, n: int = 2_000) -> None:
        self.metric, self.folder = metric, folder
        self.url = f"sqlite:///{folder}/hubbub.db"
        self.registry = folder / "metrics.toml"
        self.registry.write_text(registry_toml(metric), encoding="utf-8")
        self.by_day = {
            day: reports_of(metric, value, seed, n) for seed, day in enumerate(DAYS, start=1)
        }
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        key, width = MetricVersion(self.metric.name, 1), record_width(self.metric.params.k)
        async with open_store(self.url, create=True) as store:
            await store.declare([self.metric])
            for day, records in self.by_day.items():
                batch = NewBatch(secrets.token_bytes(16), {key: Records(width, records)})
                await store.append([batch], day)

    def count_before(self, day: dt.date) -> None:
        async def count() -> None:
            async with open_store(self.url, create=True) as store:
                await store.count_reports(day)

        asyncio.run(count())

    def export(self) -> str:
        async def export() -> None:
            async with open_store(self.url, create=False) as store:
                plan = await plan_export(store)
                async for _ in export_partitions(store, self.folder / "out", plan):
                    pass

        asyncio.run(export())
        return f"parquet:{self.folder}/out"

    def decode(self, store: str | None = None, /, **options: Any) -> Result:
        given: dict[str, Any] = {
            "metrics": self.registry,
            "store": store or self.url,
            "min_reports": 100,
        }
        return decode_metric(self.metric.name, **(given | options))


@pytest.fixture
def words(tmp_path: Path) -> Stored:
    return Stored(tmp_path, WORDS, "word 3")


def numbers_of(result: Result) -> object:
    """Return all of a result but where it comes from, and what single reports alone would show."""
    document = json.loads(json_of(result))
    document.pop("provenance")
    scrutiny = document.pop("scrutiny")
    return document, scrutiny["set_bits"], scrutiny["cohorts"]


@pytest.mark.parametrize("what", METRICS)
def test_counts_give_the_numbers_of_their_reports_to_the_last_bit(
    tmp_path: Path, what: str
) -> None:
    """Two days are counted, one isn't."""
    metric, value, options = METRICS[what]
    # A search for open strings takes long where there is much to find.
    stored = Stored(tmp_path, metric, value, 300 if what == "open string" else 2_000)
    expected = numbers_of(stored.decode(**options))
    stored.count_before(DAYS[2])
    assert numbers_of(stored.decode(**options)) == expected


def test_counts_are_decoded_from_an_export_as_from_the_store(words: Stored) -> None:
    """Each time exported over what was there, in which more was reports."""
    options: dict[str, Any] = {"candidates": NAMES, "method": "regression", "by": "day"}
    expected = numbers_of(words.decode(**options))
    for day in (DAYS[0], DAYS[2], DAYS[2] + dt.timedelta(days=1)):
        words.count_before(day)
        assert numbers_of(words.decode(words.export(), **options)) == expected
    left = {path.name.partition("-")[0] for path in words.folder.glob("out/*/*/*/*")}
    assert left == {"_counts", "_manifest.json"}


def test_days_are_chosen_among_counts_as_among_reports(words: Stored) -> None:
    options: dict[str, Any] = {
        "candidates": NAMES,
        "method": "regression",
        "since": DAYS[1],
        "until": DAYS[1],
    }
    expected = numbers_of(words.decode(**options))
    words.count_before(DAYS[2])
    assert numbers_of(words.decode(**options)) == expected
    with pytest.raises(UndecodableError, match="2,000 reports of words version 1 from 2026-11-02"):
        words.decode(**options | {"min_reports": 2_001})


@pytest.mark.parametrize("by", [None, "day"])
def test_likelihood_says_from_which_day_on_there_are_whole_reports(
    words: Stored, by: str | None
) -> None:
    words.count_before(DAYS[2])
    options: dict[str, Any] = {"candidates": NAMES, "by": by}
    with pytest.raises(UndecodableError) as refused:
        words.decode(method="likelihood", **options)
    assert str(refused.value) == (
        "--method likelihood needs whole reports, and of days up to 2026-11-02 only counts are "
        "kept: decode from 2026-11-03 on (--since 2026-11-03), or leave --method out"
    )
    if by is None:
        words.decode(method="likelihood", since=DAYS[2], **options)


def test_auto_takes_regression_where_a_part_is_counted_and_says_why(words: Stored) -> None:
    def method() -> tuple[str, str]:
        summary = json.loads(json_of(words.decode(candidates=NAMES)))["summary"]
        return summary["method"], summary["method_reason"]

    assert method()[0] == "likelihood"
    words.count_before(DAYS[1])
    assert method() == (
        "least squares",
        "of days up to 2026-11-01 only counts are kept; there are whole reports from 2026-11-02 on",
    )


def _by_loading(load: Callable[..., Any], stored: Stored, choice: Choice) -> Any:
    """Load while upkeep counts the oldest day, after it was looked for and before it is read."""
    counted = False

    def spool_for(total: int, last_counted: dt.date | None) -> ReportSpool | None:
        nonlocal counted
        spool = choice.spool_for(total, last_counted)
        if not counted:
            counted = True
            with ThreadPoolExecutor(1) as thread:
                thread.submit(stored.count_before, DAYS[1]).result()
        return spool

    return asyncio.run(load(stored.url, stored.metric, spool_for=spool_for))


@pytest.mark.parametrize("load", [load_counts, load_days])
def test_reports_that_are_counted_meanwhile_are_read_once_and_not_taken_for_whole(
    words: Stored, load: Callable[..., Any]
) -> None:
    choice = Choice(Method.AUTO, NOISE, len(NAMES))
    found = _by_loading(load, words, choice)
    counts = found if load is load_counts else sum(found.by_day.values(), start=_none())
    assert counts.total == 6_000
    if load is load_days:
        assert (found.whole, found.whole_by_day) == (None, {})
    decoding = decode(counts, NOISE, hashed(NAMES, NOISE))
    completed = choice.complete(decoding, None, hashed(NAMES, NOISE), lambda _n, _gap: None)
    assert completed.summary.method_reason.startswith("of days up to 2026-11-01 only counts")


@pytest.mark.parametrize("load", [load_counts, load_days])
def test_likelihood_is_refused_for_what_is_counted_meanwhile(
    words: Stored, load: Callable[..., Any]
) -> None:
    with pytest.raises(UndecodableError, match="--since 2026-11-02"):
        _by_loading(load, words, Choice(Method.LIKELIHOOD, NOISE, len(NAMES)))


def _none() -> Any:
    return keep_counts(b"", NOISE).counts


def test_improbable_reports_and_uneven_cohorts_show_in_counts_and_repeats_do_not() -> None:
    """40,000 equal reports of one cohort, with all bits set."""
    metric = make_metric(params=make_params(k=64, h=2, m=8))
    width = record_width(64)
    forged = 40_000 * (bytes(2) + b"\xff" * 8)
    honest = reports_of(metric, "a", 1, 20_000)
    whole, partly, counted = (AnomalyDetector(metric) for _ in range(3))
    whole.add(Records(width, honest + forged))
    partly.add(Records(width, honest))
    partly.add_counts(keep_counts(forged, metric.params))
    counted.add_counts(keep_counts(honest + forged, metric.params))
    expected = whole.result()
    assert (expected.improbable, expected.cohorts_suspicious) == (40_000, True)
    for found in (partly.result(), counted.result()):
        assert (found.improbable, found.plausible) == (expected.improbable, expected.plausible)
        assert found.balance == expected.balance
        assert found.suspicious
    said, alone = (anomaly_lines(each.result())["repeated reports"] for each in (partly, counted))
    assert said == (
        "of 40,000 reports only counts are kept; of 20,000 reports looked at none repeats more "
        "often than honest ones might"
    )
    assert alone == "not assessable: of 60,000 reports only counts are kept"
    assert partly.result().as_json()["only_counted"] == 40_000


def test_counts_of_other_parameters_are_refused() -> None:
    kept = keep_counts(b"", make_params(k=8, m=2))
    with Counting(NOISE) as counting, pytest.raises(UndecodableError, match=r"must be \(8, 32\)"):
        counting.add_counts(kept)
