"""When a scheduler sends what, and what an answer does; a day of trouble in a moment."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hubbub.client.delivery import DeliveryLoop, DeliverySettings, Fetch, system_chance
from hubbub.client.ledger import Account
from hubbub.client.outbox import TOO_OLD, LeasedBatch, Outbox
from hubbub.client.recorder import WITHDRAWN, Recorder
from hubbub.client.transport import Answer, Outcome, classify_response, failure, refusal_reason
from parameters import examples
from unit.client.outboxes import (
    ORIGIN,
    REGISTRY,
    SECRET,
    another_process_holds,
    id_in,
    make_batches,
    numbers_in,
    opened,
    put,
)

DELIVERED = Answer(Outcome.DELIVERED)
REFUSED = "refused by the collector"
UNREACHABLE = failure(ConnectionRefusedError(), 0.0)
FAILED = classify_response(500, {}, b"", 0.0)
NEARLY_ONE = 1.0 - 2.0**-53
NOON = 1_700_000_000.0


class Desk:
    """A delivery loop on a real outbox, with a clock that is set and a die that is loaded."""

    def __init__(self, folder: Path, outbox: Outbox, batch_size: int, seconds: float) -> None:
        self._folder = folder
        self.outbox = outbox
        self.now = NOON
        self.chance = 0.5
        self.recorder = Recorder(REGISTRY, 100, 100)
        settings = DeliverySettings(batch_size, seconds, 2**20, 1.0, ORIGIN)
        self.delivery = DeliveryLoop(
            self.recorder, folder, settings, lambda: self.now, lambda: self.chance
        )

    def spool(self, *numbers: int) -> None:
        put(self._folder, *numbers, now=self.now)

    def next(self, *, at_once: bool = False) -> LeasedBatch | float:
        step = self.delivery.schedule(self.outbox, at_once=at_once)
        assert isinstance(step, LeasedBatch | float)  # there is no switch
        return step

    def wait(self, *, at_once: bool = False) -> float:
        step = self.next(at_once=at_once)
        assert isinstance(step, float), "sent too early"
        return step

    def batch(self, *, at_once: bool = False) -> LeasedBatch:
        step = self.next(at_once=at_once)
        assert isinstance(step, LeasedBatch), f"nothing to send for {step} seconds"
        return step

    def settle(self, batch: LeasedBatch, answer: Answer) -> Counter[str]:
        """Answer an attempt; return how many reports were delivered, or dropped, by reason."""
        self.recorder.dropped.clear()
        self.recorder.delivered = 0
        self.delivery.settle(self.outbox, batch, answer)
        return +Counter({"delivered": self.recorder.delivered, **self.recorder.dropped})

    def answer(self, answer: Answer) -> Counter[str]:
        return self.settle(self.batch(at_once=True), answer)

    def delay_after(self, answer: Answer) -> float:
        """Answer the next attempt, and return for how long nothing is sent then."""
        self.answer(answer)
        return self.wait()


@pytest.fixture
def desk(tmp_path) -> Iterator[Desk]:
    with opened(tmp_path) as outbox:
        yield Desk(tmp_path, outbox, batch_size=5, seconds=60.0)


def too_many_requests(seconds: float) -> Answer:
    return Answer(Outcome.RETRY, retry_after=seconds)


def refused(*indices: int) -> Answer:
    body = json.dumps({"errors": [{"report": index, "detail": "no"} for index in indices]})
    return classify_response(422, {}, body.encode(), 0.0)


def test_full_batch_is_due_at_once(desk):
    desk.spool(1, 2, 3, 4, 5)
    assert sorted(numbers_in(desk.batch())) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 30.0), (0.5, 60.0), (NEARLY_ONE, 90.0)])
def test_smaller_batch_is_due_after_half_to_one_and_a_half_of_its_time(desk, chance, seconds):
    desk.chance = chance
    desk.spool(1)
    assert desk.wait() == pytest.approx(seconds)
    desk.now += seconds - 1.0
    assert desk.wait() == pytest.approx(1.0)
    desk.now += 1.0
    assert numbers_in(desk.batch()) == [1]


def test_later_reports_do_not_put_off_the_first(desk):
    desk.spool(1)
    assert desk.wait() == 60.0
    desk.now += 59.0
    desk.spool(2)
    assert desk.wait() == 1.0
    desk.now += 1.0
    assert sorted(numbers_in(desk.batch())) == [1, 2]


def test_every_batch_draws_its_own_time(desk):
    waits = []
    for number, chance in enumerate([0.1, 0.9, 0.4]):
        desk.chance = chance
        desk.spool(number)
        waits.append(desk.wait())
        desk.now += waits[-1]
        desk.answer(DELIVERED)
    assert waits == pytest.approx([36.0, 84.0, 54.0])


def test_flush_makes_a_batch_of_what_there_is(desk):
    desk.spool(1, 2)
    desk.wait()
    assert sorted(numbers_in(desk.batch(at_once=True))) == [1, 2]


def test_batches_are_sent_one_after_the_other_and_the_oldest_first(desk):
    for first in range(0, 20, 5):
        desk.spool(*range(first, first + 5))
    sent = []
    for _ in range(4):
        batch = desk.batch()
        sent += numbers_in(batch)
        assert desk.settle(batch, DELIVERED) == {"delivered": 5}
    assert [sorted(sent[i : i + 5]) for i in range(0, 20, 5)] == [
        list(range(i, i + 5)) for i in range(0, 20, 5)
    ]
    assert desk.outbox.waiting() == 0


@pytest.mark.parametrize("answer", [UNREACHABLE, classify_response(500, {}, b"", 0.0)])
def test_batch_that_was_deleted_while_it_was_sent_is_counted(desk, answer):
    desk.spool(1, 2)
    batch = desk.batch(at_once=True)
    desk.outbox.clear(desk.now)
    desk.delivery.refusal = "no consent"
    assert desk.settle(batch, answer) == {WITHDRAWN: 2}


def test_id_changes_only_while_nothing_can_have_been_stored(desk):
    """Nobody answered; the collector says that nothing was stored; it doesn't say."""
    desk.spool(1)
    unstored, unknown = (
        classify_response(503, {}, body, 0.0) for body in (b'{"stored": false}', b"{}")
    )
    ids = []
    for answer in (UNREACHABLE, unstored, unknown, unstored, UNREACHABLE):
        batch = desk.batch(at_once=True)
        ids.append(id_in(batch))
        desk.settle(batch, answer)
        desk.delivery.reset_backoff(desk.outbox)
    assert len(set(ids)) == 3
    assert len(set(ids[2:])) == 1


def test_idle_scheduler_is_in_no_hurry_to_look_again(desk):
    assert desk.wait() >= 600.0


def test_scheduler_looks_again_for_what_another_process_has_in_hand(tmp_path, desk):
    """That one may be killed."""
    desk.spool(1)
    make_batches(desk.outbox, 1, desk.now)
    with another_process_holds(tmp_path, desk.now):
        assert 0.0 < desk.wait() <= 60.0
    assert desk.batch()


def test_back_off_doubles_up_to_five_minutes(desk):
    desk.chance = NEARLY_ONE
    desk.spool(1)
    delays = []
    for _ in range(12):
        delays.append(desk.delay_after(UNREACHABLE))
        desk.now += delays[-1]
    assert delays == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300])


def test_back_off_has_full_jitter(desk):
    desk.spool(1)
    for chance, seconds in [(0.25, 0.25), (0.5, 1.0), (0.125, 0.5), (0.75, 6.0)]:
        desk.chance = chance
        assert desk.delay_after(UNREACHABLE) == pytest.approx(seconds)
        desk.now += seconds


def test_nothing_is_sent_during_a_back_off_however_much_comes(desk):
    desk.spool(1)
    for _ in range(10):
        desk.now += desk.delay_after(UNREACHABLE)
    delay = desk.delay_after(UNREACHABLE)
    desk.spool(*range(100))
    assert desk.wait() == desk.wait(at_once=True) == delay
    desk.now += delay / 2
    assert desk.wait(at_once=True) == pytest.approx(delay / 2)
    desk.now += delay / 2
    assert desk.batch()


@pytest.mark.parametrize("answer", [DELIVERED, classify_response(413, {}, b"", 0.0), refused(0)])
def test_any_word_from_the_collector_ends_the_back_off(desk, answer):
    desk.chance = NEARLY_ONE
    desk.spool(1, 2, 3, 4, 5)
    for _ in range(5):
        desk.now += desk.delay_after(UNREACHABLE)
    desk.answer(answer)
    desk.spool(6, 7, 8, 9, 10)
    assert desk.delay_after(UNREACHABLE) == pytest.approx(1.0)


@pytest.mark.parametrize("chance", [0.0, 0.5, NEARLY_ONE])
def test_retry_after_is_the_least_that_is_waited(desk, chance):
    desk.chance = chance
    desk.spool(1)
    assert desk.delay_after(too_many_requests(120.0)) == pytest.approx(120.0 + chance)
    desk.now += 119.0
    assert desk.wait() == pytest.approx(1.0 + chance)


def test_reset_of_backoff_ends_our_own_back_off(desk):
    desk.spool(1)
    for _ in range(8):
        desk.now += desk.delay_after(UNREACHABLE)
    assert desk.delay_after(UNREACHABLE) > 100.0
    desk.delivery.reset_backoff(desk.outbox)
    assert desk.batch()


def test_reset_of_backoff_does_not_shorten_what_the_collector_asked_for(desk):
    desk.spool(1)
    assert desk.delay_after(too_many_requests(120.0)) == 120.5
    desk.delivery.reset_backoff(desk.outbox)
    assert desk.wait(at_once=True) == 120.0
    desk.now += 119.0
    desk.delivery.reset_backoff(desk.outbox)
    assert desk.wait(at_once=True) == pytest.approx(1.0)
    desk.now += 1.0
    assert desk.batch()


def unknown(*metrics: str, wrong: tuple[int, ...] = ()) -> Answer:
    """Say that a collector doesn't know metrics yet, and that some reports are wrong for good."""
    body = {
        "retry": True,
        "unknown": [{"metric": name, "version": 1} for name in metrics],
        "errors": [{"report": index, "detail": "no"} for index in wrong],
    }
    return classify_response(422, {}, json.dumps(body).encode(), 0.0)


def put_mood(desk: Desk, folder: Path, *numbers: int) -> None:
    put(folder, *numbers, metric="mood", now=desk.now)


def test_reports_of_unknown_metrics_wait_and_the_rest_goes_at_once(desk, tmp_path):
    desk.spool(1, 2)
    put_mood(desk, tmp_path, 101, 102)
    first = desk.batch(at_once=True)
    assert len(numbers_in(first)) == 4
    assert desk.settle(first, unknown("mood")) == {}
    second = desk.batch(at_once=True)
    assert numbers_in(second) == [1, 2]
    assert id_in(second) != id_in(first)
    assert desk.settle(second, DELIVERED) == {"delivered": 2}
    put_mood(desk, tmp_path, 103)
    assert 0.5 <= desk.wait(at_once=True) <= 1.0
    desk.now += 1.0
    third = desk.batch(at_once=True)
    assert numbers_in(third) == [101, 102, 103]
    assert desk.settle(third, DELIVERED) == {"delivered": 3}
    assert desk.outbox.dropped == {}


def test_an_answer_may_refuse_some_for_good_and_defer_others(desk, tmp_path):
    desk.spool(1, 2)
    put_mood(desk, tmp_path, 101)
    result = desk.answer(unknown("mood", wrong=(0, 9)))
    assert result == {REFUSED: 1}
    assert numbers_in(desk.batch(at_once=True)) == [2]
    assert desk.outbox.waiting() == 2


def test_batch_that_may_have_been_stored_stays_whole_and_blocks_no_other(desk, tmp_path):
    """Divided, its reports could count twice: as part of it, and under another id."""
    desk.spool(1)
    put_mood(desk, tmp_path, 101)
    lost = desk.batch(at_once=True)
    desk.settle(lost, FAILED)
    desk.now += 1.0
    again = desk.batch(at_once=True)
    assert id_in(again) == id_in(lost)
    desk.settle(again, unknown("mood"))
    desk.spool(2)
    assert numbers_in(desk.batch(at_once=True)) == [2]
    desk.answer(DELIVERED)
    desk.now += 1.0
    whole = desk.batch(at_once=True)
    assert (id_in(whole), len(numbers_in(whole))) == (id_in(lost), 2)


def test_unknown_metric_is_tried_ever_less_often_until_it_is_once_an_hour(desk, tmp_path):
    put_mood(desk, tmp_path, 101)
    desk.chance, attempts, begin = NEARLY_ONE, 0, desk.now
    while desk.now < begin + 86_400:
        step = desk.next(at_once=True)
        if isinstance(step, float):
            desk.now += step
            continue
        attempts += 1
        desk.settle(step, unknown("mood"))
    assert 24 <= attempts <= 40
    assert desk.outbox.waiting() == 1
    desk.now += 13 * 86_400
    assert isinstance(desk.next(at_once=True), float)
    assert desk.outbox.dropped == {TOO_OLD: 1}


def test_batches_that_were_made_before_are_relieved_of_what_must_wait(desk, tmp_path):
    for number in (1, 2):
        desk.spool(number)
        put_mood(desk, tmp_path, 100 + number)
    first = desk.outbox.lease(desk.now, 1, 2)  # which puts all into two batches
    assert first is not None
    desk.settle(first, unknown("mood"))
    for number in (1, 2):
        batch = desk.batch(at_once=True)
        assert numbers_in(batch) == [number]
        desk.settle(batch, DELIVERED)
    assert desk.wait(at_once=True) > 0
    assert desk.outbox.waiting() == 2


def test_flush_tries_unknown_metrics_again(desk, tmp_path):
    put_mood(desk, tmp_path, 101)
    desk.answer(unknown("mood"))
    assert desk.wait(at_once=True) > 0
    desk.delivery.reset_backoff(desk.outbox)
    assert numbers_in(desk.batch(at_once=True)) == [101]


@pytest.mark.parametrize("listed", [[], None, "mood", [{"metric": 7, "version": 1}], [{}]])
def test_refusal_that_names_nothing_known_is_repeated_whole(listed):
    body = json.dumps({"retry": True, "unknown": listed}).encode()
    answer = classify_response(422, {}, body, 0.0)
    assert (answer.is_to_be_repeated, answer.may_be_stored) == (True, False)


def test_no_request_can_ask_for_more_than_a_day(desk):
    desk.spool(1)
    assert desk.delay_after(too_many_requests(1e12)) <= 86_400.0 + 1.0


@examples(30)
@given(back=st.floats(0.0, 1e9), asked=st.floats(0.0, 1e9))
def test_clock_that_was_set_back_blocks_nothing_for_more_than_a_day(tmp_path_factory, back, asked):
    folder = tmp_path_factory.mktemp("state")
    with opened(folder) as outbox:
        desk = Desk(folder, outbox, batch_size=5, seconds=60.0)
        desk.spool(1)
        desk.answer(too_many_requests(asked))
        desk.now -= back
        step = desk.next()
        if isinstance(step, float):
            assert step <= 86_400.0 + 300.0
            desk.now += step + 0.001
            assert desk.batch()


def test_clock_that_was_set_back_does_not_put_off_a_batch(desk):
    desk.spool(1)
    desk.wait()
    desk.now -= 86_400.0
    assert desk.batch()


def test_report_that_is_named_twice_counts_once(desk):
    desk.spool(1, 2, 3, 4, 5)
    assert desk.answer(refused(1, 1, 1)) == {REFUSED: 1}
    assert len(numbers_in(desk.batch())) == 4


@pytest.mark.parametrize(
    "answer",
    [
        refused(0, 1, 2, 3, 4),
        refused(),
        refused(5, 99),
        *(
            classify_response(status, {}, b"{}", 0.0)
            for status in (400, 401, 403, 404, 413, 415, 422)
        ),
    ],
)
def test_batch_that_will_never_be_accepted_is_dropped_and_counted(desk, answer):
    desk.spool(1, 2, 3, 4, 5)
    assert desk.answer(answer) == {refusal_reason(answer): 5}
    assert desk.outbox.waiting() == 0


def test_systems_chance_is_uniform_enough():
    """Mean of 10,000 draws; P(false alarm) < 1e-6 (five standard errors)."""
    draws = [system_chance() for _ in range(10_000)]
    assert all(0.0 <= draw < 1.0 for draw in draws)
    assert abs(sum(draws) / len(draws) - 0.5) < 5 / (12 * 10_000) ** 0.5


class LifeOfADelivery(RuleBasedStateMachine):
    """One lane stores and another sends, in any order: nothing counts as settled that waits."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        folder = Path(self.resources.enter_context(tempfile.TemporaryDirectory()))
        self.outbox = self.resources.enter_context(opened(folder))
        self.recorder = Recorder(REGISTRY, 100, 100)
        self.recorder.open(SECRET, Account(REGISTRY))
        self.delivery = DeliveryLoop(
            self.recorder, folder, DeliverySettings(5, 60.0, 2**20, 1.0, ORIGIN)
        )
        self.looked: tuple[int, LeasedBatch | Fetch | float] | None = None

    def teardown(self) -> None:
        self.resources.close()

    @rule(count=st.integers(1, 3))
    def record(self, count):
        for _ in range(count):
            self.recorder.record("homepage", "example.com")

    @rule()
    def flush(self):
        self.delivery.begin_flush()

    @rule(pages=st.sampled_from([1, 1000]))
    def store(self, pages):
        self.outbox.connection.execute(f"PRAGMA max_page_count = {pages}")  # 1: the disk is full
        stored = self.delivery.store(self.outbox)
        assert stored is not None or pages == 1
        self.outbox.connection.execute("PRAGMA max_page_count = 1000")

    @precondition(lambda self: self.looked is None)
    @rule()
    def look(self):
        seen = self.delivery.changes
        self.looked = seen, self.delivery.next_step(self.outbox)

    @precondition(lambda self: self.looked is not None)
    @rule(answer=st.sampled_from([DELIVERED, UNREACHABLE]))
    def send(self, answer):
        assert self.looked is not None
        (seen, step), self.looked = self.looked, None
        if isinstance(step, LeasedBatch):
            self.delivery.settle(self.outbox, step, answer)
        if not (isinstance(step, LeasedBatch) and answer is DELIVERED):
            self.delivery.end_sending(seen)

    @invariant()
    def nothing_is_settled_that_waits(self):
        in_memory, on_disk = len(self.recorder.pending), self.outbox.waiting()
        assert not (self.delivery.is_settled() and in_memory + on_disk)
        assert not (self.delivery.is_idle() and in_memory)


LifeOfADelivery.TestCase.settings = settings(examples(100), stateful_step_count=25)
TestLifeOfADelivery: Any = LifeOfADelivery.TestCase
