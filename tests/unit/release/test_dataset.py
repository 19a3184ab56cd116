"""Datasets: paid before answered, refused without being paid, and what is said of an answer."""

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from hubbub.release import BudgetError, DataError, Dataset, LedgerError, QueryError
from hubbub.reporting import Estimates, write_files

SURE = 400
"""An epsilon at which noise is next to nothing: 0 but with probability e^-80 in all uses here."""


@pytest.fixture
def people(tmp_path) -> Path:
    path = tmp_path / "people.parquet"
    n = 3_000
    cities = ["Rome"] * 2_000 + ["Oslo"] * 900 + ["Bern"] * 99 + ["Atlantis"]
    table = {
        "user": [f"u{i}" for i in range(n)],
        "age": [20.0 + i % 50 for i in range(n)],
        "city": cities,
        "note": [None] * n,
    }
    parquet.write_table(pa.table(table), path)
    return path


@pytest.fixture
def dataset(people) -> Iterator[Dataset]:
    with make(people, epsilon=100 * SURE, delta="0.5") as made:
        yield made


def make(people: Path, ledger: str = "l.db", **options: Any) -> Dataset:
    budget: dict[str, Any] = {"epsilon": 1, "bounds": {"age": (0, 120)}} | options
    return Dataset.create(people, ledger=people.with_name(ledger), user_column="user", **budget)


def spent(dataset: Dataset) -> Fraction:
    return dataset.ledger.spent().epsilon


def pairs(found: Estimates) -> list[tuple[str, float]]:
    return list(zip(found["key"], found["value"], strict=True))


def total_of(found: Estimates) -> float:
    summary: Any = found.metadata["summary"]
    return float(summary["total"])


def test_histograms_are_of_public_keys_or_of_those_that_many_have(dataset):
    public = dataset.histogram("city", epsilon=SURE, bins=["Paris", "Rome"], total=True)
    assert pairs(public) == [("Paris", 0), ("Rome", 2_000)]
    assert total_of(public) == 3_000
    found = dataset.histogram("city", epsilon=1, delta="1e-9")
    assert found["key"] == ["Bern", "Oslo", "Rome"]


def test_a_query_is_paid_before_it_is_answered(people, monkeypatch):
    def interrupted(*_noise: object) -> list[int]:
        raise RuntimeError

    with make(people, epsilon="0.3") as dataset:
        for _ in range(2):
            dataset.count(epsilon=0.1)
        monkeypatch.setattr("hubbub.release.mechanisms.counts.add_laplace", interrupted)
        with pytest.raises(RuntimeError):
            dataset.count(epsilon=0.1)
        with pytest.raises(BudgetError, match=r"count: the number of rows: costs epsilon 0\.1; "):
            dataset.count(epsilon=0.1)
        assert spent(dataset) == Fraction(3, 10)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (lambda d: d.mean("user", epsilon=1), "mean: user is the column of users"),
        (lambda d: d.histogram("city", epsilon=1, bins=[]), "bins: must name at least one key"),
        (lambda d: d.histogram("city", epsilon=1, bins=["Rome", ""]), "bins = '': must be keys"),
        (lambda d: d.topk("city", 1, epsilon=1, options=["\udcff"]), "without lone surrogates"),
        (lambda d: d.histogram("city", epsilon=1, bins=["a"], other=""), "other = '': must be"),
        (
            lambda d: d.histogram("age", epsilon=1, edges=[1], other="x"),
            "edges: must be left out where there are bins",
        ),
        (lambda d: d.mean("note", epsilon=1), "--bounds note=LOW"),
        *[
            (lambda d, e=e: d.count(epsilon=e), "epsilon = .*: must be from 1e-06 to")
            for e in ("1e-7", "1e25")
        ],
        *[
            (lambda d, e=e: d.count(epsilon=e), "epsilon = .*: must be a finite number")
            for e in ("-1", "inf", "x", True, None)
        ],
        (lambda d: d.count(epsilon=float("nan")), "epsilon = nan: must be a finite number"),
        (lambda d: d.count(epsilon=1, delta=1), "delta = 1: must be 0, or at least 1e-100"),
        (lambda d: d.quantile("age", 1 - 0.9, epsilon=1), "must have a denominator of at most"),
    ],
)
def test_nonsensical_requests_are_refused_and_cost_nothing(dataset, query, reason):
    with pytest.raises(QueryError, match=reason):
        query(dataset)
    assert spent(dataset) == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"bounds": {"city": (0, 1)}}, "bounds of city: none of its values is a number"),
        ({"bounds": {"age": (-1e308, 1e308)}}, "bounds of age = -1e.308:1e.308: must be finite"),
        ({"bounds": {"age": (1, 1)}}, "bounds of age = 1:1: must be finite numbers, the lower"),
        ({"bounds": {"age": (0, math.inf)}}, "bounds of age = 0:inf: must be finite"),
        ({"bins": {"city": []}}, "bins of city: must name at least one key"),
        ({"rows_per_user": 10**22}, "rows_per_user = 1.*: must be from 1 to 1,000,000"),
        ({"excess": "drop"}, "excess = 'drop': must be 'sample' or 'refuse'"),
        ({"composition": "zcdp"}, "delta = 0: must be above 0 for zCDP composition"),
        ({"epsilon": "inf"}, "epsilon = 'inf': must be a finite number"),
    ],
)
def test_declarations_that_make_no_sense_leave_no_ledger(people, options, reason):
    with pytest.raises(QueryError, match=reason):
        make(people, **options)
    assert not people.with_name("l.db").exists()


def test_data_that_changed_are_refused_until_they_are_as_before(people):
    make(people, epsilon=10).close()
    before = people.read_bytes()
    parquet.write_table(pa.table({"user": ["a"], "age": [1.0]}), people)
    with Dataset.open(people.with_name("l.db")) as dataset:
        with pytest.raises(DataError, match="changed since the ledger was made"):
            dataset.count(epsilon=1)
        assert spent(dataset) == 0
        people.write_bytes(before)
        assert len(dataset.count(epsilon=1))


def test_users_with_more_rows_are_sampled_or_refused(tmp_path):
    path = tmp_path / "visits.parquet"
    parquet.write_table(pa.table({"user": ["a"] * 500 + ["b"], "city": ["Rome"] * 501}), path)
    options: dict[str, Any] = {"bounds": {}, "epsilon": 2 * SURE}
    with make(path, **options) as dataset:
        assert dataset.count(epsilon=SURE)["value"][0] == 2
    with make(path, "three.db", **options, rows_per_user=3) as dataset:
        assert dataset.count(epsilon=SURE)["value"][0] == 4
    with pytest.raises(DataError, match="some user has 500 rows; at most 1 were declared"):
        make(path, "refused.db", **options, excess="refuse")


def test_rows_are_drawn_among_those_that_can_count(tmp_path):
    """100 people with ten rows, of which two hold values; noise is 0 but with probability e^-100.

    What counts is one of a person's rows, in a question whatever it is about.
    """
    path = tmp_path / "visits.parquet"
    table = {
        "user": [f"u{i}" for i in range(100) for _ in range(10)],
        "age": [30.0, 30.0, *[math.nan] * 4, *[None] * 4] * 100,
        "city": [*[None] * 4, "Rome", "Oslo", *[""] * 4] * 100,
    }
    parquet.write_table(pa.table(table), path)
    with make(path, epsilon=20 * SURE, delta="0.1") as dataset:
        assert dataset.count(epsilon=SURE)["value"][0] == 100
        assert dataset.count("city", epsilon=SURE)["value"][0] == 100
        assert dataset.count("age", epsilon=SURE)["value"][0] == 100
        (summed,) = dataset.sum("age", epsilon=SURE)["value"]
        assert summed == pytest.approx(3_000, abs=20)
        found = dataset.histogram("city", epsilon=SURE, delta="1e-6")
        assert sum(found["value"]) == 100
        both = dataset.histogram("city", epsilon=SURE, bins=["Rome", "Oslo"])
        assert both["value"] == found["value"][::-1]
        (rome,) = dataset.histogram("city", epsilon=SURE, bins=["Rome"])["value"]
        assert rome == 100  # as the others can't count
        split = dataset.histogram("city", epsilon=SURE, bins=["Rome"], other="rest")
        assert split["value"][0] == both["value"][0]
        assert sum(split["value"]) == 100
        shares = dataset.histogram("city", epsilon=SURE, bins=["Rome"], total=True)
        assert (shares["value"][0], total_of(shares)) == (both["value"][0], 100)
        assert dataset.candidates("city", epsilon=SURE, delta="1e-6")["value"] == found["value"]
    with make(path, "three.db", epsilon=SURE, rows_per_user=3) as dataset:
        assert dataset.count("city", epsilon=SURE)["value"][0] == 200


def test_a_ledger_is_made_once(people):
    make(people).close()
    with pytest.raises(LedgerError, match="exists; a budget is set once"):
        make(people)


def test_public_keys_in_any_normal_form_are_those_of_the_table(tmp_path):
    """Noise is 0 but with probability e^-80."""
    nfc, nfd = "Jos\u00e9", "Jose\u0301"
    path = tmp_path / "people.parquet"
    table = {"user": [f"u{i}" for i in range(30)], "name": [nfc, nfd, "Ann"] * 10}
    parquet.write_table(pa.table(table), path)
    declared: dict[str, Any] = {"epsilon": 10 * SURE, "bounds": {}, "bins": {"name": [nfd, "Ann"]}}
    with make(path, **declared) as dataset:
        rows = dataset.histogram("name", epsilon=SURE)
        assert pairs(rows) == [(nfc, 20), ("Ann", 10)]
        rows = dataset.histogram("name", epsilon=SURE, bins=[nfd, nfc], other="rest")
        assert pairs(rows) == [(nfc, 20), ("rest", 10)]
        rows = dataset.histogram("name", epsilon=SURE, bins=["Ann"], other=nfd)
        assert pairs(rows) == [("Ann", 10), (nfc, 20)]
        assert dataset.mode("name", epsilon=SURE, options=[nfd, "Ann"])["value"][0] == nfc
        assert dataset.topk("name", 2, epsilon=SURE)["value"][0] == nfc


def test_many_small_queries_last_longer_by_zcdp(people):
    """Basic composition would stop at 50."""
    answered = 0
    with make(people, composition="zcdp", delta="1e-6") as dataset:
        for _ in range(60):
            dataset.count(epsilon="0.02")
            answered += 1
        assert answered == 60
        assert spent(dataset) < 1


def test_releases_state_their_cost_and_nothing_else_about_the_data(dataset, tmp_path):
    result = dataset.histogram("city", epsilon="0.5", delta="1e-6")
    path = tmp_path / "r.json"
    write_files(result, [str(path)])
    found = json.loads(path.read_text())
    assert found["rows"][0].keys() == {"key", "value", "radius", "epsilon", "delta", "mechanism"}
    assert found["rows"][0]["epsilon"] == 0.5
    assert found["summary"]["remaining_epsilon"] == 100 * SURE - 0.5
    assert found["summary"]["noise_variance"] == pytest.approx(7.8, abs=0.2)
    promise = found["summary"]["promise"]
    assert "at most 1.65 times as likely with any one person's data as without" in promise
    assert ", but with probability 1e-06 (" in promise
    assert dataset.ledger.digest not in path.read_text()
    assert "people" not in json.dumps(found["summary"])


def test_messages_about_releases_have_codes(dataset):
    found = dataset.histogram("city", epsilon="0.5", delta="1e-6", total=True).findings
    codes = ["answer", "promise", "total", "mechanism", "theorem", "cost", "unit", "remaining"]
    assert [each.code for each in found] == codes
    values = {each.code: each.value for each in found}
    assert (values["promise"], values["cost"]) == (0.5, 0.5)
    assert values["remaining"] == 100 * SURE - 0.5


def test_a_ledger_among_the_data_is_refused(tmp_path):
    folder = tmp_path / "table"
    folder.mkdir()
    parquet.write_table(pa.table({"user": ["a"], "age": [5.0]}), folder / "a.parquet")
    with pytest.raises(LedgerError, match=r"must not be in .*, whose files are the data"):
        Dataset.create(folder, ledger=folder / "l.db", user_column="user", epsilon=1)
