"""What the lanes that store and send do next, in any order of events."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hubbub.client.recorder import Lanes

BATCH_SIZE = 5


def test_new_client_is_settled_and_has_nothing_to_do():
    lanes = Lanes(BATCH_SIZE)
    assert lanes.is_settled(0)
    assert not lanes.has_work(0)
    assert not lanes.is_time_to_send(lanes.changes)


def test_one_recording_waits_for_more_and_a_batch_does_not():
    lanes = Lanes(BATCH_SIZE)
    assert lanes.has_work(1)
    assert not lanes.is_time_to_store(1)
    assert lanes.is_time_to_store(BATCH_SIZE)


def test_hurry_stores_sends_and_forgets_failures_until_it_is_over():
    lanes = Lanes(BATCH_SIZE)
    seen = lanes.changes
    lanes.hurry()
    assert lanes.is_time_to_store(1)
    assert lanes.is_time_to_send(seen)
    assert [lanes.take_retry(), lanes.take_retry()] == [True, False]
    lanes.relax()
    assert not lanes.is_time_to_store(1)


def test_report_that_is_stored_while_the_sender_looks_is_not_overlooked():
    lanes = Lanes(BATCH_SIZE)
    seen = lanes.changes
    lanes.begin_storing()
    lanes.end_storing(changed=True)
    lanes.on_disk = 1
    lanes.end_sending(seen)  # it has found nothing
    assert lanes.is_time_to_send(seen)
    assert not lanes.is_idle(0)


def test_failed_attempt_leaves_nothing_to_wait_for_but_isnt_settled():
    lanes = Lanes(BATCH_SIZE)
    lanes.end_storing(changed=True)
    lanes.on_disk = 1
    lanes.end_sending(lanes.changes)
    assert lanes.is_idle(0)
    assert not lanes.is_settled(0)


def test_withdrawn_reports_are_deleted_before_anything_else():
    lanes = Lanes(BATCH_SIZE)
    lanes.withdraw()
    assert lanes.has_work(0)
    assert lanes.is_time_to_store(0)
    seen = lanes.changes
    lanes.clear(0)
    assert not lanes.withdrawn
    assert lanes.is_time_to_send(seen)


class LifeOfTwoLanes(RuleBasedStateMachine):
    """Recordings come, are stored, and sent; both lanes are at work at once."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes(BATCH_SIZE)
        self.pending = self.drained = self.stored = 0
        self.is_storing = False
        self.looked: tuple[int, int] | None = None

    @rule(count=st.integers(1, 3))
    def record(self, count):
        self.pending += count

    @rule()
    def flush(self):
        self.lanes.hurry()

    @precondition(lambda self: self.pending and not self.is_storing)
    @rule()
    def begin_to_store(self):
        assert self.lanes.has_work(self.pending)
        self.lanes.begin_storing()
        self.is_storing = True
        self.pending, self.drained = 0, self.pending

    @precondition(lambda self: self.is_storing)
    @rule(succeeds=st.booleans())
    def end_storing(self, succeeds):
        if succeeds:
            self.stored += self.drained
            self.lanes.on_disk = self.stored
        else:
            self.pending += self.drained
        self.lanes.end_storing(changed=succeeds)
        self.is_storing, self.drained = False, 0

    @precondition(lambda self: self.looked is None)
    @rule()
    def look(self):
        self.looked = self.lanes.changes, self.stored

    @precondition(lambda self: self.looked is not None)
    @rule(succeeds=st.booleans())
    def send(self, succeeds):
        assert self.looked is not None
        seen, stored = self.looked
        self.looked = None
        if succeeds:
            self.stored -= stored
            self.lanes.on_disk = self.stored
        if not (succeeds and stored):
            self.lanes.end_sending(seen)

    @invariant()
    def nothing_is_settled_that_waits(self):
        waits = self.pending + self.drained + self.stored
        assert not (self.lanes.is_settled(self.pending) and waits)
        assert not (self.lanes.is_idle(self.pending) and self.pending + self.drained)


TestLifeOfTwoLanes: Any = LifeOfTwoLanes.TestCase
