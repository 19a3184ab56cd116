"""The switch: files against vectors and garbage, and what one takes away from a client."""

import json
import math
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from factories import APPLICATION, make_metric, make_params, make_registry, make_secret
from hubbub.client import Registry
from hubbub.client.delivery import DeliveryLoop, DeliverySettings, Fetch
from hubbub.client.ledger import REPORTED_TODAY, Charges
from hubbub.client.outbox import LeasedBatch
from hubbub.client.recorder import Recorder
from hubbub.client.schedule import NOT_SAMPLED, SWITCHED_OFF, Switch, first_day, sample_draw
from hubbub.client.state import open_state
from hubbub.client.transport import Answer, Outcome, switch_address
from hubbub.protocol import (
    LEAST_RATE,
    Rate,
    SigningKey,
    SwitchDocument,
    SwitchError,
    SwitchFile,
    VerifyKey,
    parse_document,
)
from parameters import examples
from unit.client.test_vectors import vectors

NOON, DAY = 1_700_000_000.0, 86_400.0
ISSUED = 1_795_771_800.0
"""When the documents below were."""
NAMES = ["homepage", "theme"]
REGISTRY = make_registry(make_metric(), make_metric("theme", params=make_params(m=1)))
SETTINGS = DeliverySettings(100, 60.0, 2**24, 1.0, switch_key="")
RATES = st.floats(LEAST_RATE, 1, exclude_max=True) | st.just(0.0)
DOCUMENTS = st.builds(
    SwitchDocument,
    st.just(APPLICATION),
    st.just("2026-11-27T09:30:00Z"),
    st.lists(
        st.builds(Rate, st.sampled_from([*NAMES, "other"]), st.none() | st.integers(1, 3), RATES)
    ).map(tuple),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from([*NAMES, "rate"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["metric", "rate"]), inner),
)


def document(*rates: Rate, issued: str = "2026-11-27T09:30:00Z") -> SwitchDocument:
    return SwitchDocument(APPLICATION, issued, rates)


def file(*rates: Rate, issued: str = "2026-11-27T09:30:00Z") -> SwitchFile:
    return SwitchFile.parse(document(*rates, issued=issued).to_json())


class Client:
    """One process of an app, at a time that is set."""

    def __init__(self, folder: Path, registry: Registry = REGISTRY, key: str | None = "") -> None:
        self.folder, self.now = folder, NOON
        state = open_state(folder, registry)
        self.recorder = Recorder(registry, 100, 100)
        self.secret = state.secret
        self.recorder.open(state.secret, state.account)
        settings = SETTINGS._replace(switch_key=key)
        self.delivery = DeliveryLoop(self.recorder, folder, settings, lambda: self.now)
        self.outbox = self.delivery.open()
        self.recorder.obey(self.outbox.load_switch())

    def record(self, metric: str, value: str = "a") -> Charges:
        self.recorder.record(metric, value)
        charges = self.delivery.store(self.outbox)
        assert charges is not None
        return charges

    def next(self) -> LeasedBatch | Fetch | float:
        return self.delivery.schedule(self.outbox, at_once=True)

    def settle(self, batch: LeasedBatch | Fetch | float, outcome: Outcome) -> None:
        assert isinstance(batch, LeasedBatch)
        self.delivery.settle(self.outbox, batch, Answer(outcome))

    def keep(self, got: SwitchFile) -> bool:
        kept = self.outbox.keep_switch(got.body, got.document.issued)
        self.recorder.obey(self.outbox.load_switch())
        return kept

    def fetch(self, got: SwitchFile) -> bool:
        """Have the switch asked for, whenever that was done last."""
        self.delivery.ask()
        assert self.delivery.schedule(self.outbox) is Fetch.SWITCH
        return self.keep(got)

    def sent(self) -> list[str]:
        """Deliver what waits; return the metrics of its reports, in order."""
        metrics = []
        while isinstance(step := self.next(), LeasedBatch | Fetch):
            if isinstance(step, LeasedBatch):
                self.settle(step, Outcome.DELIVERED)
                metrics += [report.metric for report in step.batch.reports]
        return sorted(metrics)


@pytest.fixture
def client(tmp_path):
    made = Client(tmp_path)
    with closing(made.outbox):
        yield made


@pytest.mark.parametrize("row", vectors("switch"), ids=lambda row: row["name"])
def test_file_means_what_the_vectors_say(row):
    try:
        found = SwitchFile.parse(bytes.fromhex(row["file"]) + b" " * row["spaces"])
        key = row["key"] and VerifyKey.parse(row["key"])
        found.check(row["application"], key, row["now"])
    except SwitchError:
        assert row["rates"] is None
    else:
        assert [[m, v, found.document.rate(m, v)] for m, v, _ in row["rates"]] == row["rates"]


def test_samples_are_those_of_the_vectors():
    for row in vectors("samples"):
        secret = bytes.fromhex(row["secret"])
        drawn = sample_draw(row["metric"], row["application"], secret, row["period"])
        assert drawn == row["number"] / 2**53


@given(DOCUMENTS)
def test_document_is_read_as_it_was_written(made):
    assert parse_document(made.to_json()) == made


@given(
    st.binary()
    | JSON.map(lambda value: json.dumps(value).encode())
    | DOCUMENTS.flatmap(lambda made: st.integers(0, 60).map(lambda n: made.to_json()[:-n]))
)
def test_whatever_the_file_is_nothing_but_a_refusal_is_raised(data):
    with suppress(SwitchError):
        SwitchFile.parse(data)


@given(DOCUMENTS, DOCUMENTS, st.binary(min_size=32, max_size=32))
def test_no_document_turns_on_more_than_there_is_and_lower_rates_are_parts(one, other, secret):
    keys = [(name, version) for name in NAMES for version in (1, 2)]

    def reporting(*documents: SwitchDocument) -> set[tuple[str, int]]:
        together = document(*(rate for each in documents for rate in each.rates))
        switch = Switch(together, secret)
        return {key for key in keys if switch.refusal(*key) is None}

    assert reporting(one, other) == reporting(one) & reporting(other) <= reporting() == set(keys)


@examples(10)
@given(
    DOCUMENTS,
    st.lists(st.sampled_from([("homepage", "a"), ("homepage", "b"), ("theme", "a")]), max_size=5),
)
def test_no_document_makes_a_client_report_or_spend_more(tmp_path_factory, off, recordings):
    reports, spent = [], []
    for made in (off, document()):
        client = Client(tmp_path_factory.mktemp("client"))
        with closing(client.outbox):
            client.fetch(SwitchFile.parse(made.to_json()))
            for metric, value in recordings:
                client.record(metric, value)
            spent.append(client.recorder.spending())
            reports.append(client.sent())
    assert Counter(reports[0]) <= Counter(reports[1])
    assert spent[0].epsilon <= spent[1].epsilon
    assert spent[0].committed <= spent[1].committed


def test_samples_have_their_shares_and_two_metrics_are_independent():
    """20,000 clients; 5.3 standard errors in each of 4 counts: P(false alarm) < 5e-7."""
    n, rates = 20_000, {"homepage": 0.1, "theme": 0.5}
    secrets = list(map(make_secret, range(n)))
    drawn = {m: [sample_draw(m, APPLICATION, s, None) for s in secrets] for m in NAMES}
    taking = {m: [u < rates[m] for u in drawn[m]] for m in NAMES}
    both = [one and other for one, other in zip(*taking.values(), strict=True)]
    for found, share in ((taking["homepage"], 0.1), (taking["theme"], 0.5), (both, 0.05)):
        assert abs(sum(found) - n * share) < 5.3 * math.sqrt(n * share * (1 - share))
    assert abs(sum(u < 0.9 for u in drawn["theme"]) - 0.9 * n) < 5.3 * math.sqrt(0.09 * n)


def test_metric_that_is_off_is_neither_recorded_nor_charged(client):
    client.fetch(file(Rate("homepage", None, 0.0)))
    before = client.recorder.spending()
    client.record("homepage")
    assert client.recorder.dropped == {SWITCHED_OFF: 1}
    assert client.recorder.spending() == before
    assert client.sent() == []
    client.record("theme")
    assert client.sent() == ["theme"]


def test_waiting_reports_are_dropped_and_counted(client):
    client.record("homepage")
    client.record("theme")
    client.recorder.record("homepage", "b")  # charged only when it is stored
    client.fetch(file(Rate("homepage", None, 0.0)))
    stored = client.delivery.store(client.outbox)
    assert stored is not None
    assert stored.refused == {SWITCHED_OFF: 1}
    (of_homepage, _) = client.recorder.spending().metrics
    assert (of_homepage.metric, of_homepage.answers) == ("homepage", 1)
    assert client.sent() == ["theme"]
    assert client.recorder.dropped == {SWITCHED_OFF: 2}
    assert client.outbox.waiting() == 0


def test_batch_that_may_have_arrived_keeps_its_id_without_what_is_off(client):
    client.record("homepage")
    client.record("theme")
    first = client.next()
    client.settle(first, Outcome.RETRY)
    client.now += 3600
    client.fetch(file(Rate("homepage", None, 0.0)))
    again = client.next()
    assert again.batch.batch_id == first.batch.batch_id
    assert [report.metric for report in again.batch.reports] == ["theme"]


def test_report_of_today_that_may_have_arrived_is_remembered_when_it_is_dropped(tmp_path):
    """Or a metric that is off and on again would have two reports on one day."""
    client = Client(tmp_path, make_registry(make_metric(reports_per_day=1)))
    with closing(client.outbox):
        client.record("homepage")
        assert isinstance(client.next(), LeasedBatch)
        client.fetch(file(Rate("homepage", None, 0.0)))  # and no answer ever comes
        assert client.sent() == []
        client.keep(file())
        assert client.record("homepage").refused == {REPORTED_TODAY: 1}


def test_off_and_on_again_costs_nothing_and_answers_as_before(client):
    (answer,) = client.record("homepage").admitted
    committed = client.recorder.spending().committed
    client.fetch(file(Rate("homepage", None, 0.0)))
    client.record("homepage")
    client.now += DAY
    client.fetch(file())
    assert client.record("homepage").admitted == [answer]
    assert client.recorder.spending().committed == committed


def test_version_is_off_for_itself(client):
    client.fetch(file(Rate("homepage", 2, 0.0), Rate("theme", 1, 0.0)))
    client.record("homepage")
    client.record("theme")
    assert client.sent() == ["homepage"]


def test_switch_outlives_the_process_and_holds_for_others(client):
    client.record("theme")
    other = Client(client.folder)
    with closing(other.outbox):
        client.fetch(file(Rate("homepage", None, 0.0)))
        other.record("homepage")  # whose memory doesn't know yet; its transaction does
        other.record("homepage")
        assert other.recorder.dropped == {SWITCHED_OFF: 2}
    later = Client(client.folder)
    with closing(later.outbox):
        later.recorder.record("homepage", "a")
        assert later.recorder.dropped == {SWITCHED_OFF: 1}


def test_it_is_asked_for_once_a_day_after_the_collector_has_answered(client):
    assert isinstance(client.next(), float)
    hours = []
    for hour in range(0, 100, 6):
        client.now = NOON + 3600 * hour
        client.record("homepage")
        client.settle(client.next(), Outcome.DELIVERED)
        if client.next() is Fetch.SWITCH:  # which may fail: that changes nothing
            hours.append(hour)
    assert hours == [0, 24, 48, 72, 96]


def test_client_of_which_all_is_off_asks_a_day_later_when_it_would_have_sent(client, monkeypatch):
    client.fetch(file(*(Rate(name, None, 0.0) for name in NAMES)))
    for seconds, asks in ((DAY - 1, False), (DAY, True)):
        client.now = NOON + seconds
        monkeypatch.setattr("time.time", lambda: client.now)
        assert not client.recorder.take_question()
        client.recorder.record("homepage", "a")
        assert client.recorder.asks is asks
    assert client.recorder.take_question()
    client.fetch(file())
    client.record("homepage")
    assert client.sent() == ["homepage"]


def test_clock_that_was_set_back_does_not_put_it_off(client):
    client.fetch(file())
    client.now -= 30 * DAY
    client.fetch(file(Rate("homepage", None, 0.0)))
    client.record("homepage")
    assert client.sent() == []


def test_the_time_of_an_unsigned_file_is_ignored(client):
    """Anybody could have stated one that lies in the future."""
    client.fetch(file(Rate("homepage", None, 0.0), issued="9999-12-31T00:00:00Z"))
    client.now += DAY
    assert client.fetch(file())
    client.record("homepage")
    assert client.sent() == ["homepage"]


OFF = file(Rate("homepage", None, 0.0), issued="2026-11-27T09:30:00Z")


@pytest.mark.parametrize(("before", "after"), [("", "new"), ("stolen", "new"), ("old", "")])
def test_unsigned_or_foreign_switches_are_ignored(tmp_path, before, after):
    """Nor does its date keep anything out; and an app that returns finds its own as it was."""
    first = Client(tmp_path, key=before)
    with closing(first.outbox):
        first.fetch(OFF)
    updated = Client(tmp_path, key=after)
    with closing(updated.outbox):
        updated.record("homepage")
        assert updated.sent() == ["homepage"]
        updated.now += DAY
        assert updated.fetch(file(issued="2026-01-01T00:00:00Z"))
    returned = Client(tmp_path, key=before)
    with closing(returned.outbox):
        returned.recorder.record("homepage", "a")
        assert returned.recorder.dropped == {SWITCHED_OFF: 1}


def test_process_without_a_key_takes_nothing_from_one_that_has_one(tmp_path):
    """It can neither turn its metrics on, nor bring old files back, nor use up its question."""
    keyed, other = Client(tmp_path, key="a key"), Client(tmp_path)
    with closing(keyed.outbox), closing(other.outbox):
        other.fetch(file(issued="2026-11-28T00:00:00Z"))
        assert keyed.fetch(OFF)
        keyed.now = other.now = NOON + DAY
        other.fetch(file(issued="2026-11-28T00:00:00Z"))
        assert not keyed.fetch(file(issued="2026-01-01T00:00:00Z"))
        keyed.record("homepage")
        assert keyed.sent() == []


@pytest.mark.parametrize("now", [-1e9, 1e18])
def test_clock_that_is_far_from_right_raises_nothing_else(now):
    with suppress(SwitchError):
        file().check(APPLICATION, None, now)


def test_sample_is_drawn_again_in_each_period_and_holds_within_it():
    """Two draws of 4,000 clients; the share in both is r^2 within 5.3 errors: P < 2e-7."""
    switch = [
        Switch(document(Rate("homepage", None, 0.5)), make_secret(n), NOON) for n in range(4_000)
    ]
    taking = [
        [each.refusal("homepage", 1, period) is None for each in switch] for period in (700, 701)
    ]
    both = sum(one and other for one, other in zip(*taking, strict=True))
    assert abs(both - 1_000) < 5.3 * math.sqrt(4_000 * 0.25 * 0.75)
    again = [each.refusal("homepage", 2, 700) is None for each in switch]
    assert again == taking[0]


WEEKLY = make_registry(
    make_metric(mode="once", params=make_params(f=0.0), period_days=7, max_periods=50)
)


def test_client_reports_in_the_periods_whose_sample_it_is_in(tmp_path, monkeypatch):
    client = Client(tmp_path, WEEKLY)
    metric, secret = WEEKLY["homepage"], client.secret
    reported = set()
    with closing(client.outbox):
        client.fetch(file(Rate("homepage", None, 0.5)))
        monkeypatch.setattr("time.time", lambda: client.now)
        begin = first_day(metric, secret, 2811)
        for day in range(begin, first_day(metric, secret, 2831)):
            client.now = day * DAY
            if client.record("homepage").admitted:
                reported.add(day)
    assert reported == {
        first_day(metric, secret, period)
        for period in range(2811, 2831)
        if sample_draw("homepage", APPLICATION, secret, period) < 0.5
    }
    assert 0 < len(reported) < 20


def test_client_that_is_new_waits_in_no_sample_either(tmp_path, monkeypatch):
    """Or most of a small sample's periods would pass before it began to wait."""
    client = Client(tmp_path, WEEKLY)
    metric, secret = WEEKLY["homepage"], client.secret
    drawn = {p: sample_draw("homepage", APPLICATION, secret, p) for p in range(2811, 2900)}
    period = next(p for p in drawn if drawn[p] > 0.5 > drawn[p + 1])
    with closing(client.outbox):
        client.fetch(file(Rate("homepage", None, 0.5)))
        monkeypatch.setattr("time.time", lambda: client.now)
        client.now = (first_day(metric, secret, period + 1) - 1) * DAY
        assert client.record("homepage").refused == {NOT_SAMPLED: 1}
        client.recorder.record("homepage", "a")
        assert not client.recorder.pending
        client.now = (first_day(metric, secret, period + 2) - 1) * DAY
        assert client.record("homepage").admitted


def test_status_shows_a_client_outside_the_sample(client):
    share = sample_draw("homepage", APPLICATION, client.secret, None)
    client.fetch(file(Rate("homepage", None, share)))  # in a sample are those below
    client.record("homepage")
    assert client.recorder.dropped == {NOT_SAMPLED: 1}
    client.now += DAY
    client.fetch(file(Rate("homepage", None, math.nextafter(share, 1))))
    client.record("homepage")
    assert client.sent() == ["homepage"]


def test_keys_are_read_as_they_are_written():
    key = SigningKey.generate()
    assert SigningKey.parse(str(key)).public == key.public
    assert VerifyKey.parse(str(key.public)) == key.public
    signed = SwitchFile.parse(key.sign(document().to_json()))
    signed.check(APPLICATION, key.public, ISSUED)
    with pytest.raises(SwitchError, match="signature"):
        signed.check(APPLICATION, SigningKey.generate().public, ISSUED)
    for text in ("", str(key)[:-1], str(key.public), "hub_sign_" + "_" * 43):
        with pytest.raises(SwitchError, match="key: ") as error:
            SigningKey.parse(text)
        assert not text or text[-9:] not in str(error.value)


@pytest.mark.parametrize(
    ("switch", "endpoint", "address"),
    [
        (None, "https://a.example", None),
        (False, "https://a.example", None),
        (True, "https://a.example/b/", "https://a.example/b/v1/switch"),
        ("https://c.example/off.json", "https://a.example", "https://c.example/off.json"),
        ("http://127.0.0.1/off", "http://127.0.0.1", "http://127.0.0.1/off"),
    ],
)
def test_address_is_the_collectors_or_one_that_is_given(switch: Any, endpoint, address):
    assert switch_address(switch, endpoint) == address


@pytest.mark.parametrize(
    "switch", ["http://c.example", "c.example", "https://c.example/?client=1", "https://u@c", 7]
)
def test_address_that_is_less_protected_or_could_tell_clients_apart_is_refused(switch: Any):
    with pytest.raises(ValueError, match="switch = "):
        switch_address(switch, "https://a.example")
