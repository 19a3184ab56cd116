"""The client against the committed test vectors of docs/protocol, and these against the document.

The vectors were made by `reference`, which shares no code with the client.
"""

import math
from io import BytesIO
from typing import Any

import pytest

from evaluation.reference import compact as reference
from evaluation.reference.vectors import FOLDER, OUTPUTS, read
from factories import make_metric, make_params
from hubbub.client import (
    Batch,
    Encoder,
    MetricError,
    RapporParams,
    Registry,
    Report,
    Spending,
    batch_to_json,
)
from hubbub.client.encoder import draw_cells
from hubbub.client.randomness import BernoulliSampler, KeyedStream
from hubbub.client.schedule import chosen, first_day
from hubbub.protocol import (
    Group,
    JointType,
    Metric,
    MetricType,
    OpenStringType,
    batch_to_compact,
    bit_positions,
    bloom_bits,
    canonical_bytes,
)
from parameters import quick_but
from unit.client.accounts import DiskClient, MemoryClient, Outcome, registry_of

KEPT = {"compact_refused", "refused_registries", "switch"}  # nothing follows but what is refused

Row = dict[str, Any]


def vectors(name: str) -> list[dict[str, Any]]:
    rows = read(name)
    assert rows
    return rows


@pytest.mark.parametrize("name", quick_but({"prices"}, sorted(OUTPUTS)))
def test_committed_vectors_are_what_the_reference_computes(name):
    rows = vectors(name)
    assert [row | OUTPUTS[name](row) for row in rows] == rows


def test_every_vector_file_is_checked():
    assert {path.stem for path in FOLDER.glob("*.json")} == OUTPUTS.keys() | KEPT


def test_bloom_bits():
    for row in vectors("bloom"):
        params = make_params(k=row["k"], h=row["h"], m=1024)
        assert list(bit_positions(row["value"], row["cohort"], params)) == row["positions"]
        bits = bloom_bits(row["value"], row["cohort"], params)
        assert bits.to_bytes(row["k"] // 8, "little").hex() == row["bits"]


def test_bernoulli_bits():
    for row in vectors("bernoulli"):
        selector = int.from_bytes(bytes.fromhex(row["selector"]), "little")
        stream = KeyedStream(bytes.fromhex(row["stream_message"]))
        drawn = BernoulliSampler(row["k"], row["low"], row["high"]).draw(selector, stream)
        assert drawn.to_bytes(row["k"] // 8, "little").hex() == row["bits"]


def test_cohorts():
    for row in vectors("cohort"):
        assert encoder(row, make_params(m=row["m"])).cohort == row["cohort"]


def test_permanent_responses():
    for row in vectors("permanent"):
        params = make_params(k=row["k"], h=row["h"], m=row["m"], f=row["f"])
        client = encoder(row, params)
        bits = bloom_bits(row["value"], client.cohort, params)
        assert_bits(client, bits, row)


def test_open_strings_from_the_value_to_the_permanent_response():
    for row in vectors("open_strings"):
        metric_type = OpenStringType.from_table("row", row["entry"])
        noise = {name: row["entry"][name] for name in ("f", "p", "q")}
        params = RapporParams(**metric_type.filter_size(row["entry"]), **noise)
        client = encoder(row, params, metric_type)
        assert client.cohort == row["cohort"]
        step = client.cohort // metric_type.cohorts
        hashed = metric_type.prefix(canonical_bytes(row["value"]), step)
        assert hashed.hex() == row["hashed"]
        assert_bits(client, client.true_bits(row["value"]), row)
        assert_epsilons(client.metric, row)


def test_joint_values_from_the_value_to_the_permanent_response():
    for row in vectors("joint"):
        metric_type = JointType.from_table("row", row["entry"])
        noise = {name: row["entry"][name] for name in ("f", "p", "q")}
        params = RapporParams(**metric_type.filter_size(row["entry"]), **noise)
        assert params[:3] == (row["k"], row["h"], row["m"])
        client = encoder(row, params, metric_type)
        assert client.cohort == row["cohort"]
        if metric_type.hashed:
            hashed = metric_type.tuple_bytes(metric_type.digits(row["value"]))
            assert hashed.hex() == row["hashed"]
        assert_bits(client, client.true_bits(row["value"]), row)
        assert_epsilons(client.metric, row)


def test_wire_bytes():
    for row in vectors("wire"):
        reports = tuple(Report(**(r | {"bits": bytes.fromhex(r["bits"])})) for r in row["reports"])
        assert batch_to_json(Batch(reports, row["batch_id"])).decode() == row["json"]


def test_compact_bytes():
    for row in vectors("compact"):
        reports = tuple(Report(**(r | {"bits": bytes.fromhex(r["bits"])})) for r in row["reports"])
        body = batch_to_compact(Batch(reports, row["batch_id"]))
        assert body.hex() == row["body"]
        assert reference.decode(body) == (row["batch_id"], [reports[i] for i in row["order"]])


def test_no_other_bytes_are_a_compact_body():
    for row in vectors("compact_refused"):
        assert reference.decode(bytes.fromhex(row["body"])) is None, row["why"]


def cases(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", vectors(name), ids=lambda row: row["name"])


@cases("account")
def test_account_of_a_process_that_never_gets_to_its_disk(row):
    client = MemoryClient(registry_of(row["registry"]))
    assert played(client, row) == expected(row)
    assert_sums(client.spending(), row)


@cases("account")
def test_account_of_processes_that_each_record_once(row, tmp_path):
    client = DiskClient(tmp_path, registry_of(row["registry"]))
    assert played(client, row) == expected(row)
    assert_sums(client.spending(), row)


@cases("account")
def test_account_of_two_processes_that_take_turns(row, tmp_path):
    client = DiskClient(tmp_path, registry_of(row["registry"]), processes=2)
    assert played(client, row) == expected(row)
    assert_sums(client.spending(), row)


@cases("updates")
def test_account_of_an_app_that_is_updated(row, tmp_path):
    client = DiskClient(tmp_path, registry_of(row["steps"][0]["registry"]))
    for step in row["steps"]:
        client.registry = registry_of(step["registry"])
        assert played(client, step) == expected(step)
    assert_sums(client.spending(), row)


def test_asymmetric_permanent_responses():
    for row in vectors("asymmetric"):
        noise = {name: row[name] for name in ("f0", "f1")}
        params = RapporParams(row["k"], row["h"], row["m"], p=0.25, q=0.75, **noise)
        client = encoder(row, params)
        bits = bloom_bits(row["value"], client.cohort, params)
        assert_bits(client, bits, row)


def test_prices_of_more_reports():
    for row in vectors("prices"):
        noise = {name: row[name] for name in ("f", "f0", "f1", "p", "q") if name in row}
        params = RapporParams(8, row["h"], 1, **noise)
        of_a_bit = row["type"] == "boolean"
        after = params.epsilon_after_of_a_bit if of_a_bit else params.epsilon_after
        stated = [float(f"{after(reports):.9g}") for reports in (row["reports"], math.inf)]
        assert stated == [row["epsilon"], row["epsilon_permanent"]]


def test_reports_that_are_drawn_as_a_whole():
    for row in vectors("whole_reports"):
        metric = metric_of(row["entry"])
        assert [metric.params.k, metric.params.m] == [row["k"], row["m"]]
        numbers = (metric.params.p, metric.params.q, metric.epsilon_report, metric.price)
        stated = [float(f"{number:.9g}") for number in numbers]
        assert stated == [row["p"], row["q"], row["epsilon"], row["epsilon"]]
        stream = KeyedStream(bytes.fromhex(row["stream_message"]))
        drawn = draw_cells(metric.response, row["own"], stream)
        assert drawn.to_bytes(row["k"] // 8, "little").hex() == row["bits"]


def test_positions_of_numbers():
    for row in vectors("numbers"):
        metric = metric_of(row["entry"])
        coins = BytesIO(bytes.fromhex(row["coins"]))
        bits = metric.type.drawn_bits(row["value"], row["cohort"], metric.params, coins.read)
        assert bits == 1 << row["position"]


def test_first_days():
    for row in vectors("first_days"):
        of, name = row["name"].split(":")
        metric = make_metric(
            name, application=row["application"], mode="once", period_days=row["period_days"]
        )._replace(group=name if of == "group" else "")
        day = first_day(metric, bytes.fromhex(row["secret"]), row["period"])
        assert day == row["first_day"]


def test_choices():
    for row in vectors("choices"):
        group = Group(row["group"], tuple(row["metrics"]), row["choice"])
        secret = bytes.fromhex(row["secret"])
        assert chosen(group, row["application"], secret, row["period"]) == row["chosen"]


@cases("once")
def test_account_of_a_client_that_reports_once_a_period_or_one_of_a_group(row, tmp_path):
    secret = bytes.fromhex(row["secret"])
    client = DiskClient(tmp_path, registry_of(row["steps"][0]["registry"]), secret=secret)
    for step in row["steps"]:
        client.registry = registry_of(step["registry"])
        assert played(client, step) == expected(step)
    assert_sums(client.spending(), row)


@cases("once")
def test_account_of_such_a_client_that_never_gets_to_its_disk(row):
    first = row["steps"][0]
    client = MemoryClient(registry_of(first["registry"]), bytes.fromhex(row["secret"]))
    assert played(client, first) == expected(first)


def test_refused_registries():
    for row in vectors("refused_registries"):
        if row["why"] is None:
            assert isinstance(registry_of(row["registry"]), Registry)
        else:
            with pytest.raises(MetricError):
                pytest.fail(f"{row['why']}: {registry_of(row['registry'])}")


def test_slices():
    for row in vectors("slices"):
        registry = registry_of(row["registry"]).with_dimensions(row["values"])
        assert {name: metric.slice for name, metric in registry.items()} == row["slices"]
        for name, metric in registry.items():
            assert metric.slice_as(row["slices"][name]) == row["slices"][name]


def test_development_refuses_values_that_are_mistyped():
    for row in vectors("slices"):
        registry = registry_of(row["registry"])
        if row["mistyped"]:
            with pytest.raises(MetricError):
                pytest.fail(str(registry.with_dimensions(row["values"], strict=True)))
        else:
            assert registry.with_dimensions(row["values"], strict=True).keys() == registry.keys()


def metric_of(entry: Row) -> Metric:
    texts = {"version": 1, "description": "d", "owner": "o", "expires": "2199-12-31"}
    rules = {"application": "com.example.vectors", "metrics": {"a": texts | entry}}
    return registry_of(rules)["a"]


def played(client: MemoryClient | DiskClient, row: Row) -> list[Outcome]:
    return [client.record(r["time"], r["metric"], r["value"]) for r in row["recordings"]]


def expected(row: Row) -> list[Outcome]:
    return [Outcome(recording["result"], recording["answer"]) for recording in row["recordings"]]


def assert_bits(client: Encoder, bits: int, row: Row) -> None:
    width = client.metric.params.k // 8
    assert bits.to_bytes(width, "little").hex() == row["bits"]
    permanent = client.permanent_response(bits).bits
    assert permanent.to_bytes(width, "little").hex() == row["permanent"]


def assert_epsilons(metric: Metric, row: Row) -> None:
    stated = [float(f"{e:.9g}") for e in (metric.epsilon_permanent, metric.epsilon_report)]
    assert stated == [row["epsilon_permanent"], row["epsilon_report"]]


def assert_sums(spending: Spending, row: Row) -> None:
    assert float(f"{spending.committed:.9g}") == row["committed"]
    assert float(f"{spending.epsilon:.9g}") == row["spent"]


def encoder(
    row: dict[str, Any], params: RapporParams, metric_type: MetricType | None = None
) -> Encoder:
    metric = make_metric(
        row["metric"],
        version=row["version"],
        params=params,
        application=row["application"],
        metric_type=metric_type,
    )._replace(params=params)
    return Encoder(metric, bytes.fromhex(row["secret"]))
