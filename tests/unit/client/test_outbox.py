"""The queue on disk: nothing lost uncounted, nothing under two ids, nothing held twice."""

from __future__ import annotations

import json
import tempfile
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hubbub.protocol.wire import without_reports
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from factories import make_metric, make_params, make_registry, make_report
from hubbub.client.errors import UnavailableError
from hubbub.client.outbox import (
    DAMAGED,
    MOST_BYTES,
    NO_ROOM,
    TOO_OLD,
    Outbox,
    Parcel,
    spool,
)
from unit.client.outboxes import (
    HOLD_SECONDS,
    MAX_AGE,
    REGISTRY,
    another_process_holds,
    execute,
    id_in,
    must_hold,
    numbers_in,
    numbers_on_disk,
    open_storage,
    opened,
    put,
)


def test_batch_takes_the_oldest_reports(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        for first in (0, 3, 6, 9):
            put(tmp_path, first, first + 1, first + 2)
        outbox.make_batch(5, now=0.0)
        parcel = must_hold(outbox)
        assert sorted(numbers_in(parcel.body)) == [0, 1, 2, 3, 4]
        assert parcel.reports == 5
        assert outbox.spooled() == 7


def test_order_of_reports_in_a_batch_is_random(tmp_path: Path) -> None:
    """Of 50 reports, all of 20 batches in the order of recording: probability below 1e-1000."""
    with opened(tmp_path) as outbox:
        orders = []
        for _ in range(20):
            put(tmp_path, *range(50))
            outbox.make_batch(50, now=0.0)
            parcel = must_hold(outbox)
            orders.append(numbers_in(parcel.body))
            outbox.remove(parcel)
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len(set(map(tuple, orders))) == 20


def test_no_batch_holds_the_lasting_cohorts_of_two_metrics(tmp_path: Path) -> None:
    """Those of periods, and of metrics with a single cohort, name nobody and may share one."""
    with opened(tmp_path) as outbox:
        for metric in ("homepage", "search", "mood", "theme"):
            put(tmp_path, 1, metric=metric)
        batches = []
        while outbox.spooled():
            outbox.make_batch(100, now=0.0)
            parcel = must_hold(outbox)
            batches.append({r["metric"] for r in json.loads(parcel.body)["reports"]})
            outbox.remove(parcel)
    assert batches == [{"homepage", "mood", "theme"}, {"search"}]


def test_batch_that_would_be_too_large_for_a_collector_is_split(tmp_path: Path) -> None:
    wide = make_registry(make_metric(params=make_params(k=1024)))
    reports = [make_report(wide["homepage"], bits=number) for number in range(6_000)]
    with opened(tmp_path) as outbox:
        with outbox._storage.transaction() as connection:
            spool(connection, reports, wide)
        sizes, numbers = [], []
        while outbox.spooled():
            outbox.make_batch(10_000, now=0.0)
            parcel = must_hold(outbox)
            sizes.append(len(parcel.body))
            numbers += numbers_in(parcel.body)
            outbox.remove(parcel)
    assert len(sizes) == 2
    assert MOST_BYTES * 0.99 < max(sizes) <= MOST_BYTES
    assert sorted(numbers) == list(range(6_000))


def test_batches_are_never_larger_than_was_asked(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, *range(25))
        sizes = []
        for _ in range(3):
            outbox.make_batch(10, now=0.0)
            parcel = must_hold(outbox)
            sizes.append(parcel.reports)
            outbox.remove(parcel)
        assert sizes == [10, 10, 5]


def test_nothing_spooled_makes_no_batch(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        outbox.make_batch(10, now=0.0)
        assert outbox.hold_oldest(0.0) is None


def test_every_batch_has_an_id_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        ids = set()
        for number in range(20):
            put(tmp_path, number)
            outbox.make_batch(1, now=0.0)
            parcel = must_hold(outbox)
            ids.add(id_in(parcel.body))
            outbox.remove(parcel)
    assert len(ids) == 20
    assert all(len(bytes.fromhex(batch_id)) == 16 for batch_id in ids)


def test_batch_that_is_put_back_is_byte_for_byte_the_same(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, 1, 2, 3)
        outbox.make_batch(3, now=0.0)
        first = must_hold(outbox)
        outbox.put_back(first)
    with opened(tmp_path) as outbox_of_the_next_run:
        assert must_hold(outbox_of_the_next_run) == first


def test_shortened_batch_keeps_its_id_and_loses_what_it_must(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, 10, 11, 12, 13)
        outbox.make_batch(4, now=0.0)
        whole = must_hold(outbox)
        numbers = numbers_in(whole.body)
        body, kept = without_reports(whole.body, [1, 2])
        outbox.shorten(whole, body, kept)
        rest = must_hold(outbox)
        assert numbers_in(rest.body) == [numbers[0], numbers[3]]
        assert id_in(rest.body) == id_in(whole.body)
        assert rest.reports == outbox.waiting() == 2


def test_waiting_counts_batches_and_spool_and_spooled_only_the_spool(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        assert (outbox.waiting(), outbox.batched(), outbox.spooled()) == (0, 0, 0)
        put(tmp_path, 1, 2)
        put(tmp_path, 3)
        assert (outbox.waiting(), outbox.batched(), outbox.spooled()) == (3, 0, 3)
        outbox.make_batch(2, now=0.0)
        assert (outbox.waiting(), outbox.batched(), outbox.spooled()) == (3, 2, 1)
        outbox.remove(must_hold(outbox))
        assert (outbox.waiting(), outbox.batched(), outbox.spooled()) == (1, 0, 1)


def test_batch_that_another_process_sends_is_left_to_it(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        outbox.make_batch(1, now=0.0)
        put(tmp_path, 2)
        outbox.make_batch(1, now=0.0)
        with another_process_holds(tmp_path):
            assert numbers_in(must_hold(outbox).body) == [2]


def test_batch_of_a_dead_process_is_taken_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        outbox.make_batch(1, now=0.0)
        with another_process_holds(tmp_path) as process:
            assert outbox.hold_oldest(0.0) is None
            process.kill()
            process.wait()
            assert numbers_in(must_hold(outbox).body) == [1]


def test_batch_that_is_held_too_long_is_taken(tmp_path: Path) -> None:
    """The holder may be stuck, or another program that got the process id of a dead one."""
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        outbox.make_batch(1, now=0.0)
        with another_process_holds(tmp_path, now=100.0):
            assert outbox.hold_oldest(100.0 + HOLD_SECONDS - 1) is None
            assert outbox.hold_oldest(100.0 + HOLD_SECONDS) is not None


def test_clock_that_was_set_back_prolongs_no_hold(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        outbox.make_batch(1, now=0.0)
        with another_process_holds(tmp_path, now=4600.0):
            assert outbox.hold_oldest(1000.0) is not None


def test_batch_that_was_taken_a_moment_ago_is_held(tmp_path: Path) -> None:
    """Two processes read the clock, then one takes the batch while the other waits for its turn."""
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        outbox.make_batch(1, now=0.0)
        with another_process_holds(tmp_path, now=1000.0):
            assert outbox.hold_oldest(999.9) is None


def test_who_settles_a_batch_too_late_harms_no_other(tmp_path: Path) -> None:
    """Its hold ran out, another process has sent it, and a new batch might bear its key."""
    with opened(tmp_path) as slow, opened(tmp_path) as quick:
        for settle in (slow.remove, slow.put_back, lambda p: slow.shorten(p, p.body, p.reports)):
            put(tmp_path, 1)
            slow.make_batch(1, now=0.0)
            late = must_hold(slow, now=0.0)
            quick.remove(must_hold(quick, now=HOLD_SECONDS))
            put(tmp_path, 2)
            quick.make_batch(1, now=0.0)
            settle(late)
            parcel = must_hold(quick, now=HOLD_SECONDS)
            assert numbers_in(parcel.body) == [2]
            quick.remove(parcel)
            assert quick.waiting() == 0


def test_own_batch_may_be_taken_again(tmp_path: Path) -> None:
    """Else an attempt that ended in an error of the disk would leave it lying."""
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        outbox.make_batch(1, now=0.0)
        assert must_hold(outbox) == must_hold(outbox)


def test_two_outboxes_of_one_process_never_hold_the_same(tmp_path: Path) -> None:
    with opened(tmp_path) as ours:
        put(tmp_path, 1)
        ours.make_batch(1, now=0.0)
        with opened(tmp_path) as theirs:
            parcel = must_hold(theirs)
            assert ours.hold_oldest(0.0) is None
        assert must_hold(ours) == parcel


def test_batch_of_an_earlier_process_with_our_id_is_taken_at_once(tmp_path: Path) -> None:
    """In a container an app often has the same process id after every start."""
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        outbox.make_batch(1, now=0.0)
        must_hold(outbox)
        execute(tmp_path, "UPDATE batches SET holder = holder + 1")
        assert outbox.hold_oldest(0.0) is not None


def test_beyond_the_cap_the_oldest_are_dropped_and_counted(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=700) as outbox:
        for first in (0, 2, 4, 6, 8):
            put(tmp_path, first, first + 1)
            if first < 4:
                outbox.make_batch(2, now=0.0)
        before = outbox.waiting()
        outbox.trim(0.0)
        assert outbox.dropped == {NO_ROOM: before - outbox.waiting()}
        outbox.make_batch(100, now=0.0)
        kept = []
        while parcel := outbox.hold_oldest(0.0):
            kept += numbers_in(parcel.body)
            outbox.remove(parcel)
        assert 0 < len(kept) < 10
        assert sorted(kept) == list(range(10 - len(kept), 10))


def test_trimming_below_the_cap_drops_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, *range(100))
        outbox.make_batch(50, now=0.0)
        outbox.trim(0.0)
        assert outbox.waiting() == 100
        assert outbox.dropped == {}


def test_trimmed_outbox_is_no_larger_than_its_cap(tmp_path: Path) -> None:
    put(tmp_path, *range(200))
    for cap in (15_000, 7_000, 1_000, 1):
        with opened(tmp_path, max_bytes=cap) as outbox:
            outbox.make_batch(30, now=0.0)
            outbox.trim(0.0)
            assert size_of(tmp_path) <= cap


def test_what_another_process_sends_is_not_trimmed(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=1) as outbox:
        for number in (1, 2):
            put(tmp_path, number)
            outbox.make_batch(1, now=0.0)
        with another_process_holds(tmp_path):
            outbox.trim(0.0)
            assert outbox.dropped == {NO_ROOM: 1}
        assert numbers_in(must_hold(outbox).body) == [1]


def test_what_another_process_sends_is_not_too_old(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        outbox.make_batch(1, now=0.0)
        with another_process_holds(tmp_path, now=MAX_AGE):
            outbox.trim(MAX_AGE + 1.0)
            assert outbox.dropped == {}
        outbox.trim(MAX_AGE + 1.0)
        assert outbox.dropped == {TOO_OLD: 1}


def test_batch_older_than_the_collectors_memory_is_dropped_and_counted(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, 1, 2)
        outbox.make_batch(2, now=100.0)
        put(tmp_path, 3)
        outbox.make_batch(1, now=101.0)
        outbox.trim(100.0 + MAX_AGE)
        assert outbox.dropped == {}
        outbox.trim(100.5 + MAX_AGE)
        assert outbox.dropped == {TOO_OLD: 2}
        assert numbers_in(must_hold(outbox).body) == [3]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE spool SET body = CAST(replace(body, 'page', 'Page') AS BLOB) WHERE id = 1",
        "UPDATE spool SET body = CAST(body AS TEXT) WHERE id = 1",
        "UPDATE spool SET checksum = 1 WHERE id = 1",
        "UPDATE spool SET checksum = zeroblob(16) WHERE id = 1",
        "UPDATE spool SET body = substr(body, 1, 40) WHERE id = 1",
    ],
)
def test_damaged_report_is_dropped_and_counted_and_the_others_are_sent(
    tmp_path: Path, damage: str
) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        put(tmp_path, 3)
        execute(tmp_path, damage)
        outbox.make_batch(10, now=0.0)
        assert numbers_in(must_hold(outbox).body) == [3]
        assert outbox.dropped == {DAMAGED: 1}
        assert outbox.waiting() == 1


@pytest.mark.parametrize("what", ["body = x'00'", "checksum = x''"])
def test_damaged_batch_is_dropped_and_counted_and_never_sent(tmp_path: Path, what: str) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, 1, 2)
        outbox.make_batch(2, now=0.0)
        put(tmp_path, 3)
        outbox.make_batch(1, now=0.0)
        execute(tmp_path, f"UPDATE batches SET {what} WHERE id = 1")  # noqa: S608
        assert numbers_in(must_hold(outbox).body) == [3]
        assert outbox.dropped == {DAMAGED: 2}
        assert outbox.waiting() == 1


def test_full_disk_takes_no_reports_and_is_no_damage(tmp_path: Path) -> None:
    with closing(open_storage(tmp_path)) as storage:
        storage._connection.execute("PRAGMA max_page_count = 1")  # as many as there are
        reports = [make_report(bits=number) for number in range(1000)]
        with pytest.raises(UnavailableError, match="full"), storage.transaction() as connection:
            spool(connection, reports, REGISTRY)
        storage._connection.execute("PRAGMA max_page_count = 1000")
        with storage.transaction() as connection:
            spool(connection, reports, REGISTRY)
    with opened(tmp_path) as outbox:
        assert outbox.waiting() == 1000


def test_full_disk_neither_loses_nor_counts_anything(tmp_path: Path) -> None:
    with opened(tmp_path) as outbox:
        put(tmp_path, 1)
        put(tmp_path, *range(100, 140))
        execute(tmp_path, "UPDATE spool SET checksum = x'' WHERE id = 1")
        execute(tmp_path, NEED_A_MEGABYTE)
        outbox._storage._connection.execute("PRAGMA max_page_count = 100")
        with pytest.raises(UnavailableError, match="full"):
            outbox.make_batch(100, now=0.0)
        assert outbox.dropped == {}
        assert outbox.waiting() == 41
        execute(tmp_path, "DROP TRIGGER need_a_megabyte")
        outbox.make_batch(100, now=0.0)
        assert must_hold(outbox).reports == 40
        assert outbox.dropped == {DAMAGED: 1}


def test_racing_outboxes_hand_out_each_batch_to_one_at_a_time(tmp_path: Path) -> None:
    """Eight threads, each with a connection of its own; half of their attempts fail."""
    for number in range(120):
        put(tmp_path, number)
    held: set[int] = set()
    sent: list[int] = []
    ids: dict[int, set[str]] = {}
    clashes: list[int] = []
    lock = threading.Lock()

    def send(outbox: Outbox, parcel: Parcel, *, succeeds: bool) -> None:
        (number,) = numbers_in(parcel.body)
        with lock:
            clashes.extend({number} & held)
            held.add(number)
            ids.setdefault(number, set()).add(id_in(parcel.body))
        with lock:
            held.discard(number)
            sent.extend([number] * succeeds)
        (outbox.remove if succeeds else outbox.put_back)(parcel)

    def work(worker: int) -> None:
        with opened(tmp_path) as outbox:
            turn = worker
            while outbox.waiting():
                outbox.make_batch(1, now=0.0)
                if parcel := outbox.hold_oldest(0.0):
                    turn += 1
                    send(outbox, parcel, succeeds=turn % 2 == 0)

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
BEGIN INSERT INTO spool VALUES (NULL, 0, zeroblob(1000000), x''); END
"""


class LifeOfAnOutbox(RuleBasedStateMachine):
    """Anything may happen to two outboxes of one database, in any order.

    The model knows which reports went in and which were settled, who holds what since when, and
    under which id each report was seen. Who settles too late, when the other may have the batch or
    have dropped it, makes it possible that a report is settled as well as dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.folder = Path(self.resources.enter_context(tempfile.TemporaryDirectory()))
        self.outboxes = [self.resources.enter_context(opened(self.folder, 5_000)) for _ in "ab"]
        self.now = 0.0
        self.spooled = 0
        self.settled: set[int] = set()
        self.holds: dict[int, tuple[Parcel, float]] = {}
        self.ids: dict[int, str] = {}
        self.was_too_late = False

    def teardown(self) -> None:
        self.resources.close()

    @rule(count=st.integers(1, 12), metric=st.sampled_from(sorted(REGISTRY)))
    def spool(self, count: int, metric: str) -> None:
        put(self.folder, *range(self.spooled, self.spooled + count), metric=metric)
        self.spooled += count

    @rule(who=st.integers(0, 1), enough=st.integers(1, 10))
    def make_batch(self, who: int, enough: int) -> None:
        self.outboxes[who].make_batch(enough, self.now)

    @rule(who=st.integers(0, 1))
    def hold(self, who: int) -> None:
        self.holds.pop(who, None)  # if it has one, that attempt ended in an error
        parcel = self.outboxes[who].hold_oldest(self.now)
        if parcel is None:
            return
        other = self.holds.get(1 - who)
        assert not (other and other[0].key == parcel.key and self.is_in_time(other[1]))
        for number in numbers_in(parcel.body):
            assert self.ids.setdefault(number, id_in(parcel.body)) == id_in(parcel.body)
        assert parcel.reports == len(numbers_in(parcel.body))
        self.holds[who] = parcel, self.now

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        outbox, parcel = self.release(data)
        outbox.remove(parcel)
        self.settled.update(numbers_in(parcel.body))

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        outbox, parcel = self.release(data)
        outbox.put_back(parcel)

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def refuse_the_first(self, data: st.DataObject) -> None:
        outbox, parcel = self.release(data)
        if parcel.reports > 1:
            outbox.shorten(parcel, *without_reports(parcel.body, [0]))
            self.settled.add(numbers_in(parcel.body)[0])

    @rule(who=st.integers(0, 1))
    def trim(self, who: int) -> None:
        if who not in self.holds:  # a courier trims before it takes a batch
            self.outboxes[who].trim(self.now)

    @rule(seconds=st.sampled_from([-3600.0, -1.0, 1.0, HOLD_SECONDS, MAX_AGE]))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds

    @rule(table=st.sampled_from(["spool", "batches"]))
    def damage_the_newest(self, table: str) -> None:
        newest = f"(SELECT max(id) FROM {table})"  # noqa: S608
        execute(self.folder, f"UPDATE {table} SET checksum = x'' WHERE id = {newest}")  # noqa: S608

    @invariant()
    def nothing_is_lost_uncounted(self) -> None:
        on_disk = numbers_on_disk(self.folder)
        assert len(on_disk) == len(set(on_disk)) == self.outboxes[0].waiting()
        missing = len(set(range(self.spooled)) - self.settled - set(on_disk))
        dropped = sum(sum(outbox.dropped.values()) for outbox in self.outboxes)
        assert missing <= dropped
        assert missing == dropped or self.was_too_late

    def release(self, data: st.DataObject) -> tuple[Outbox, Parcel]:
        who = data.draw(st.sampled_from(sorted(self.holds)))
        parcel, since = self.holds.pop(who)
        self.was_too_late |= not self.is_in_time(since)
        return self.outboxes[who], parcel

    def is_in_time(self, since: float) -> bool:
        return since <= self.now < since + HOLD_SECONDS


LifeOfAnOutbox.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestLifeOfAnOutbox: Any = LifeOfAnOutbox.TestCase


def size_of(folder: Path) -> int:
    query = "SELECT (SELECT total(length(body)) FROM spool) + total(length(body)) FROM batches"
    with opened(folder) as outbox, outbox._storage.transaction() as connection:
        return int(connection.execute(query).fetchone()[0])
