"""The queue on disk: nothing lost uncounted, nothing under two ids, nothing held twice."""

import random
import tempfile
import threading
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from evaluation.reference import compact as reference
from factories import make_metric, make_params, make_registry
from hubbub.client import batch_to_json
from hubbub.client.outbox import _SIZE, MOST_BYTES, NO_ROOM, TOO_OLD, LeasedBatch, Outbox
from hubbub.protocol import UnavailableError, batch_to_compact
from parameters import examples
from unit.client.outboxes import (
    LEASE_SECONDS,
    MAX_AGE,
    REGISTRY,
    another_process_holds,
    execute,
    id_in,
    lease,
    make_batches,
    must_hold,
    numbers_in,
    numbers_on_disk,
    opened,
    put,
    remove,
)


def test_order_of_reports_in_a_batch_is_independent_of_recording(tmp_path):
    """They ascend, which is the order of the compact form, too."""
    with opened(tmp_path) as outbox:
        put(tmp_path, *random.Random(1).sample(range(200), 50))  # noqa: S311
        leased = must_hold(outbox)
        reports = leased.batch.reports
        remove(outbox, leased)
    assert b"homepage" not in (tmp_path / "client.db").read_bytes()  # nor is it any more on disk
    records = [(report.metric, report.cohort, report.bits) for report in reports]
    assert records == sorted(records)
    assert len(records) == 50


def test_reports_stand_in_the_order_of_the_compact_form_whatever_their_slices(tmp_path):
    """For a collector names those that it refuses by their places there."""
    slices = ("", "platform=mac", "platform=mac,release=1.10", "platform=mac,release=1.2")
    for number, slice_ in enumerate(reversed(slices)):
        put(tmp_path, number, 9 - number, metric="theme", slice_=slice_)
        put(tmp_path, number, metric="theme-2", slice_=slice_)
    with opened(tmp_path) as outbox:
        batch = must_hold(outbox).batch
    assert {report.slice for report in batch.reports} == set(slices)
    expected = [reference.Report(*report) for report in batch.reports]
    assert reference.decode(batch_to_compact(batch)) == (batch.batch_id, expected)


def test_no_batch_holds_the_lasting_cohorts_of_two_metrics(tmp_path):
    """Those of periods, and of metrics with a single cohort, name nobody and may share one."""
    with opened(tmp_path) as outbox:
        for metric in ("homepage", "search", "mood", "theme"):
            put(tmp_path, 1, metric=metric)
        batches = []
        while outbox.waiting():
            batch = must_hold(outbox)
            batches.append({report.metric for report in batch.batch.reports})
            remove(outbox, batch)
    assert batches == [{"homepage", "mood", "theme"}, {"search"}]


def test_batch_that_would_be_too_large_for_a_collector_is_split(tmp_path):
    wide = make_registry(make_metric(params=make_params(k=1024)))
    put(tmp_path, *range(6_000), registry=wide)
    with opened(tmp_path, 2**22) as outbox:
        sizes, numbers = [], []
        while outbox.waiting():
            batch = must_hold(outbox, most=10_000)
            sizes.append(len(batch_to_json(batch.batch)))
            numbers += numbers_in(batch)
            remove(outbox, batch)
    assert len(sizes) == 2
    assert MOST_BYTES * 0.9 < max(sizes) <= MOST_BYTES
    assert sorted(numbers) == list(range(6_000))


def test_id_stays_if_another_process_has_sent_the_batch_meanwhile(tmp_path):
    with opened(tmp_path) as slow, opened(tmp_path) as quick:
        put(tmp_path, 1)
        late = must_hold(slow)
        sent = must_hold(quick, now=LEASE_SECONDS)
        for _ in range(2):  # while the other sends, and after
            slow.settle(late, may_be_stored=False)
            assert id_in(must_hold(quick, now=LEASE_SECONDS)) == id_in(sent) == id_in(late)
            quick.settle(sent)


def test_reports_wait_for_the_collector_that_they_were_recorded_for(tmp_path):
    other = "https://another.example.com:443"
    put(tmp_path, 1)
    put(tmp_path, 2, origin=other)
    with opened(tmp_path) as ours, opened(tmp_path, origin=other) as theirs:
        assert (ours.waiting(), theirs.waiting()) == (1, 1)
        assert numbers_in(must_hold(ours)) == [1]
        assert numbers_in(must_hold(theirs)) == [2]
        assert ours.clear(LEASE_SECONDS) == 2  # consent is the application's, wherever it reports


def test_waiting_counts_all_and_spooled_what_is_in_no_batch(tmp_path):
    with opened(tmp_path) as outbox:
        assert (outbox.waiting(), outbox.has_batches(), outbox.spooled()) == (0, False, 0)
        put(tmp_path, 1, 2)
        assert (outbox.waiting(), outbox.has_batches(), outbox.spooled()) == (2, False, 2)
        make_batches(outbox, 2)
        put(tmp_path, 3)
        assert (outbox.waiting(), outbox.has_batches(), outbox.spooled()) == (3, True, 1)
        assert outbox.lease(0.0, least=2, most=2)
        assert outbox.spooled() == 1


def test_batch_that_another_process_sends_is_left_to_it(tmp_path):
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        make_batches(outbox, 1)
        put(tmp_path, 2)
        make_batches(outbox, 1)
        with another_process_holds(tmp_path):
            assert numbers_in(must_hold(outbox)) == [2]


def test_batch_of_a_dead_process_is_taken_at_once(tmp_path):
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        make_batches(outbox, 1)
        with another_process_holds(tmp_path) as process:
            assert lease(outbox) is None
            process.kill()
            process.wait()
            assert numbers_in(must_hold(outbox)) == [1]


def test_batch_that_is_held_too_long_is_taken(tmp_path):
    """The holder may be stuck, or another program that got the process id of a dead one."""
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        make_batches(outbox, 1)
        with another_process_holds(tmp_path, now=100.0):
            assert lease(outbox, 100.0 + LEASE_SECONDS - 1) is None
            assert lease(outbox, 100.0 + LEASE_SECONDS) is not None


def test_clock_that_was_set_back_prolongs_no_hold(tmp_path):
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        make_batches(outbox, 1)
        with another_process_holds(tmp_path, now=4600.0):
            assert lease(outbox, 1000.0) is not None


def test_batch_that_was_taken_a_moment_ago_is_held(tmp_path):
    """Two processes read the clock, then one takes the batch while the other waits for its turn."""
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        make_batches(outbox, 1)
        with another_process_holds(tmp_path, now=1000.0):
            assert lease(outbox, 999.9) is None


def test_settling_a_batch_too_late_affects_no_other(tmp_path):
    """Its hold ran out, another process has sent it, and a new batch might bear its key."""
    with opened(tmp_path) as slow, opened(tmp_path) as quick:
        for settled in (range(1), (), [0]):
            put(tmp_path, 1)
            late = must_hold(slow, now=0.0)
            remove(quick, must_hold(quick, now=LEASE_SECONDS))
            put(tmp_path, 2)
            make_batches(quick, 1, LEASE_SECONDS)
            slow.settle(late, settled)
            batch = must_hold(quick, now=LEASE_SECONDS)
            assert numbers_in(batch) == [2]
            remove(quick, batch)
            assert quick.waiting() == 0


def test_own_batch_may_be_taken_again(tmp_path):
    """Else an attempt that ended in an error of the disk would leave it lying."""
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        make_batches(outbox, 1)
        assert must_hold(outbox)[:3] == must_hold(outbox)[:3]


def test_two_outboxes_of_one_process_never_hold_the_same(tmp_path):
    with opened(tmp_path) as ours:
        put(tmp_path, 1)
        make_batches(ours, 1)
        with opened(tmp_path) as theirs:
            batch = must_hold(theirs)
            assert lease(ours) is None
        assert must_hold(ours)[:3] == batch[:3]


def test_batch_of_an_earlier_process_with_our_id_is_taken_at_once(tmp_path):
    """In a container an app often has the same process id after every start."""
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        make_batches(outbox, 1)
        must_hold(outbox)
        execute(tmp_path, "UPDATE batches SET holder = holder + 1")
        assert lease(outbox) is not None


def test_beyond_the_cap_the_oldest_are_dropped_and_counted(tmp_path):
    with opened(tmp_path) as outbox:
        for first in (0, 2):
            put(tmp_path, first, first + 1)
            make_batches(outbox, 2)
    with opened(tmp_path, max_bytes=500) as outbox:
        put(tmp_path, *range(4, 10))
        outbox.trim(0.0)
        assert outbox.dropped == {NO_ROOM: 10 - outbox.waiting()}
        kept = []
        while batch := lease(outbox):
            kept += numbers_in(batch)
            remove(outbox, batch)
        assert 0 < len(kept) < 10
        assert sorted(kept) == list(range(10 - len(kept), 10))


def test_trimmed_outbox_is_no_larger_than_its_cap(tmp_path):
    put(tmp_path, *range(200))
    for cap in (15_000, 7_000, 1_000, 1):
        with opened(tmp_path, max_bytes=cap) as outbox:
            outbox.trim(0.0)
            make_batches(outbox, 30)
            assert size_of(tmp_path) <= cap


def test_cap_is_about_what_reports_take_on_disk(tmp_path):
    """The file grows by a tenth more or less than what is counted of 10,000 reports."""
    for metric in ("homepage", "theme"):
        folder = tmp_path / metric
        folder.mkdir()
        put(folder, 1, metric=metric)
        before = (folder / "client.db").stat().st_size
        put(folder, *range(10_000), metric=metric)
        grown = (folder / "client.db").stat().st_size - before
        assert grown == pytest.approx(size_of(folder), rel=0.1)


def test_reports_that_another_process_sends_are_not_trimmed(tmp_path):
    put(tmp_path, 1)
    with opened(tmp_path) as roomy:
        make_batches(roomy, 1)
    put(tmp_path, 2)
    with opened(tmp_path, max_bytes=1) as outbox, another_process_holds(tmp_path):
        outbox.trim(0.0)
        assert outbox.dropped == {NO_ROOM: 1}
        assert numbers_on_disk(tmp_path) == [1]


def test_reports_that_another_process_sends_do_not_expire(tmp_path):
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        make_batches(outbox, 1)
        with another_process_holds(tmp_path, now=MAX_AGE):
            outbox.trim(MAX_AGE + 1.0)
            assert outbox.dropped == {}
        outbox.trim(MAX_AGE + 1.0)
        assert outbox.dropped == {TOO_OLD: 1}


def test_batch_older_than_the_collectors_memory_is_dropped_and_counted(tmp_path):
    with opened(tmp_path) as outbox:
        put(tmp_path, 1, 2, now=100.0)
        make_batches(outbox, 2, 100.0)
        put(tmp_path, 3, now=101.0)
        outbox.trim(100.0 + MAX_AGE)
        assert outbox.dropped == {}
        outbox.trim(100.5 + MAX_AGE)
        assert outbox.dropped == {TOO_OLD: 2}
        assert numbers_in(must_hold(outbox, 101.0)) == [3]


def test_full_disk_neither_loses_nor_counts_anything(tmp_path):
    with opened(tmp_path) as outbox:
        put(tmp_path, 1, now=-MAX_AGE - 1.0)  # which is dropped before a batch is made
        put(tmp_path, *range(100, 140))
        execute(tmp_path, NEED_A_MEGABYTE)
        outbox.connection.execute("PRAGMA max_page_count = 100")
        with pytest.raises(UnavailableError, match="full"):
            make_batches(outbox, 100)
        assert outbox.dropped == {}
        assert outbox.waiting() == 41
        execute(tmp_path, "DROP TRIGGER need_a_megabyte")
        assert must_hold(outbox).reports == 40
        assert outbox.dropped == {TOO_OLD: 1}


def test_racing_outboxes_hand_out_each_batch_to_one_at_a_time(tmp_path):
    """Eight threads, each with a connection of its own; half of their attempts fail."""
    for number in range(120):
        put(tmp_path, number)
    held: set[int] = set()
    sent: list[int] = []
    ids: dict[int, set[str]] = {}
    clashes: list[int] = []
    lock = threading.Lock()

    def send(outbox: Outbox, batch: LeasedBatch, *, succeeds: bool):
        (number,) = numbers_in(batch)
        with lock:
            clashes.extend({number} & held)
            held.add(number)
            ids.setdefault(number, set()).add(id_in(batch))
        with lock:
            held.discard(number)
            sent.extend([number] * succeeds)
        outbox.settle(batch, [0] if succeeds else ())

    def work(worker: int):
        with opened(tmp_path) as outbox:
            turn = worker
            while outbox.waiting():
                if batch := lease(outbox, most=1):
                    turn += 1
                    send(outbox, batch, succeeds=turn % 2 == 0)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert sorted(sent) == list(range(120))
    assert all(len(of_one_report) == 1 for of_one_report in ids.values())


NEED_A_MEGABYTE = """
CREATE TRIGGER need_a_megabyte AFTER INSERT ON batches
BEGIN INSERT INTO definitions VALUES ('', 0, zeroblob(1000000), 0); END
"""


class LifeOfAnOutbox(RuleBasedStateMachine):
    """Anything may happen to two outboxes of one database, in any order.

    The model knows which reports went in and which were settled, who holds what since when, and in
    how many attempts each report may have been stored under which id. Who settles too late, when
    the other may have the batch or have dropped it, makes it possible that a report is settled as
    well as dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.folder = Path(self.resources.enter_context(tempfile.TemporaryDirectory()))
        self.outboxes = [self.resources.enter_context(opened(self.folder, 5_000)) for _ in "ab"]
        self.now = 0.0
        self.spooled = 0
        self.settled: set[int] = set()
        self.holds: dict[int, tuple[LeasedBatch, float]] = {}
        self.attempts: dict[int, Counter[str]] = defaultdict(Counter)
        self.was_too_late = False

    def teardown(self) -> None:
        self.resources.close()

    @rule(count=st.integers(1, 12), metric=st.sampled_from(sorted(REGISTRY)))
    def spool(self, count, metric):
        put(self.folder, *range(self.spooled, self.spooled + count), metric=metric)
        self.spooled += count

    @rule(who=st.integers(0, 1), enough=st.integers(1, 10))
    def put_into_batches(self, who, enough):
        if who not in self.holds:
            make_batches(self.outboxes[who], enough, self.now)

    @rule(who=st.integers(0, 1))
    def hold(self, who):
        self.holds.pop(who, None)  # if it has one, that attempt ended in an error
        batch = lease(self.outboxes[who], self.now)
        if batch is None:
            return
        other = self.holds.get(1 - who)
        assert not (other and other[0].key == batch.key and self.is_in_time(other[1]))
        for number in numbers_in(batch):
            self.attempts[number][id_in(batch)] += 1
            assert len(+self.attempts[number]) == 1
        assert batch.reports == len(numbers_in(batch))
        self.holds[who] = batch, self.now

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def deliver(self, data):
        outbox, batch = self.release(data)
        remove(outbox, batch)
        self.settled.update(numbers_in(batch))

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def fail(self, data):
        outbox, batch = self.release(data)
        outbox.settle(batch)

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def fail_before_anything_is_stored(self, data):
        outbox, batch = self.release(data)
        outbox.settle(batch, may_be_stored=False)
        for number in numbers_in(batch):
            self.attempts[number][id_in(batch)] -= 1

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def refuse_the_first(self, data):
        outbox, batch = self.release(data)
        if batch.reports > 1:
            outbox.settle(batch, [0])
            self.settled.add(numbers_in(batch)[0])

    @rule(who=st.integers(0, 1))
    def trim(self, who):
        if who not in self.holds:  # a scheduler trims before it takes a batch
            self.outboxes[who].trim(self.now)

    @rule(seconds=st.sampled_from([-3600.0, -1.0, 1.0, LEASE_SECONDS, MAX_AGE]))
    def let_time_pass(self, seconds):
        self.now += seconds

    @invariant()
    def nothing_is_lost_uncounted(self):
        on_disk = numbers_on_disk(self.folder)
        assert len(on_disk) == len(set(on_disk)) == self.outboxes[0].waiting()
        missing = len(set(range(self.spooled)) - self.settled - set(on_disk))
        dropped = sum(sum(outbox.dropped.values()) for outbox in self.outboxes)
        assert missing <= dropped
        assert missing == dropped or self.was_too_late

    def release(self, data: st.DataObject) -> tuple[Outbox, LeasedBatch]:
        who = data.draw(st.sampled_from(sorted(self.holds)))
        batch, since = self.holds.pop(who)
        self.was_too_late |= not self.is_in_time(since)
        return self.outboxes[who], batch

    def is_in_time(self, since: float) -> bool:
        return since <= self.now < since + LEASE_SECONDS


LifeOfAnOutbox.TestCase.settings = settings(examples(40), stateful_step_count=40)
TestLifeOfAnOutbox: Any = LifeOfAnOutbox.TestCase


def size_of(folder: Path) -> int:
    query = f"SELECT total({_SIZE}) FROM reports"  # noqa: S608
    with opened(folder) as outbox, outbox.transaction() as connection:
        return int(connection.execute(query).fetchone()[0])
