"""A day in the life of three clients and their collector, played through in a moment.

Real schedulers, outboxes and databases; clock, network and collector are models. Nothing
here draws from the system's randomness what the course of events depends on, so a seed is a day.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import json
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from factories import make_registry, make_report
from hubbub.client.delivery import DeliveryLoop, DeliverySettings
from hubbub.client.outbox import LeasedBatch, spool
from hubbub.client.recorder import Recorder
from hubbub.client.state import open_state
from hubbub.client.transport import Answer, Outcome, classify_response, failure
from unit.client.outboxes import ORIGIN, id_in, numbers_in

MIDNIGHT = 1_700_000_000.0
DAY = 86_400.0
LAST_TROUBLE = DAY - 3 * 3600.0
ROOMY, TIGHT = 4 * 2**20, 12_000
READ_TIMEOUT = 10.0
REFUSED = "refused by the collector"


class Weather(enum.Enum):
    """How the collector, or the network before it, behaves for a while."""

    WELL = "answers"
    HANGING = "never answers, although it may have stored what came"
    REFUSING = "refuses connections"
    FAILING = "answers 500"
    LIMITING = "answers 429 with Retry-After"
    TOO_LARGE = "answers 413"


class Request(NamedTuple):
    """What the collector saw of an attempt, and what it asked for."""

    when: float
    process: int
    batch_id: str
    numbers: tuple[int, ...]
    weather: Weather
    retry_after: float


class Outage(NamedTuple):
    """A stretch of time during which no attempt is answered well."""

    start: float
    end: float


def is_acceptable(number: int) -> bool:
    """Tell whether the collector would ever take this report."""
    return number % 50 != 7


class ModelCollector:
    """Stores each batch id once, as the real one does, and has good and bad hours."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._starts, self._weathers = _forecast(chance)
        self.stored: dict[str, tuple[int, ...]] = {}
        self.requests: list[Request] = []

    def receive(self, when: float, process: int, leased: LeasedBatch) -> tuple[float, Answer]:
        """Return the answer and how many seconds it takes."""
        weather = self._weathers[bisect_right(self._starts, when) - 1]
        numbers, retry_after = tuple(numbers_in(leased)), 0.0
        seconds, answer = 0.05, UNREACHABLE
        match weather:
            case Weather.WELL:
                answer = self._store(id_in(leased), numbers)
            case Weather.HANGING:
                seconds, answer = READ_TIMEOUT, UNANSWERED
                if self._chance.random() < 0.5:
                    self._store(id_in(leased), numbers)
            case Weather.FAILING:
                answer = classify_response(500, {}, b"", when)
            case Weather.LIMITING:
                retry_after = float(self._chance.randrange(1, 1800))
                answer = classify_response(429, {"Retry-After": f"{retry_after:.0f}"}, b"", when)
            case Weather.TOO_LARGE:
                answer = classify_response(413, {}, b"", when)
        self.requests.append(Request(when, process, id_in(leased), numbers, weather, retry_after))
        return seconds, answer

    def outages(self) -> list[Outage]:
        ends = [*self._starts[1:], MIDNIGHT + DAY]
        return [
            Outage(start, end)
            for start, end, weather in zip(self._starts, ends, self._weathers, strict=True)
            if weather not in {Weather.WELL, Weather.TOO_LARGE}
        ]

    def _store(self, batch_id: str, numbers: tuple[int, ...]) -> Answer:
        errors = [{"report": i} for i, n in enumerate(numbers) if not is_acceptable(n)]
        if errors:
            return classify_response(422, {}, json.dumps({"errors": errors}).encode(), 0.0)
        known = batch_id in self.stored
        if not known:
            self.stored[batch_id] = numbers
        accepted = {"accepted": len(numbers)}
        return classify_response(200 if known else 201, {}, json.dumps(accepted).encode(), 0.0)


@dataclass
class Client:
    """One client's account of the day; all its processes share a state directory."""

    folder: Path
    max_bytes: int
    recorded: int = 0
    delivered: int = 0
    waiting: int = 0
    acknowledged: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


class Process:
    """An app that sends: what the client's threads do, as events."""

    def __init__(self, day: Day, client: Client, number: int) -> None:
        self._day, self._client, self.number = day, client, number
        settings = DeliverySettings(20, 60.0, client.max_bytes, 5.0, READ_TIMEOUT, ORIGIN)
        self._recorder = Recorder(REGISTRY, 100, 100)
        self._delivery = DeliveryLoop(
            self._recorder, client.folder, settings, day.clock, day.chance.random
        )
        self.outbox = self._delivery.open()
        self.outbox.connection.execute("PRAGMA synchronous = OFF")
        self._sending = self._ended = False
        self._turn = 0
        self.look()

    def look(self, *, at_once: bool = False) -> None:
        """Do what is due, and come back when the scheduler says so."""
        self._turn += 1
        if self._sending or self._ended:
            return
        step = self._delivery.schedule(self.outbox, at_once=at_once)
        if isinstance(step, LeasedBatch):
            self._sending = True
            seconds, answer = self._day.collector.receive(self._day.now, self.number, step)
            self._day.at(seconds, lambda: self._settle(step, answer))
        elif isinstance(step, float):  # no client of this day has a switch
            turn = self._turn
            self._day.at(step, lambda: self.look() if turn == self._turn else None)

    def flush(self) -> None:
        self._delivery.reset_backoff(self.outbox)
        self.look(at_once=True)

    def record(self, numbers: list[int]) -> None:
        reports = [make_report(bits=number) for number in numbers]
        with self.outbox.transaction() as connection:
            spool(connection, reports, REGISTRY, ORIGIN, self._day.now)
        self._client.recorded += len(numbers)
        self.look()

    def end(self) -> None:
        """Stop without a word; the answer that it waits for will find nobody."""
        self._ended = True
        self.outbox.close()
        self._client.delivered += self._recorder.delivered
        dropped = self.outbox.dropped + self._recorder.dropped
        del dropped[REFUSED]
        self._client.dropped.update(dropped)

    def _settle(self, batch: LeasedBatch, answer: Answer) -> None:
        if self._ended:
            return
        before = self._recorder.dropped[REFUSED]
        self._delivery.settle(self.outbox, batch, answer)
        client, numbers = self._client, numbers_in(batch)
        if answer.outcome is Outcome.DELIVERED:
            client.acknowledged += numbers
        elif answer.outcome is Outcome.REFUSED:
            named = answer.refused or range(len(numbers))
            client.refused += [numbers[index] for index in named]
            assert self._recorder.dropped[REFUSED] - before == len(named)
        self._sending = False
        self.look()


class Day:
    """The clock and what is to happen; afterwards the accounts of all who took part."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.now = MIDNIGHT
        self.chance = random.Random(seed)  # noqa: S311
        self.collector = ModelCollector(random.Random(seed + 1000))  # noqa: S311
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._process_numbers = itertools.count()
        self._report_numbers = itertools.count()
        self.clients = [
            Client(folder / str(number), max_bytes)
            for number, max_bytes in enumerate((ROOMY, ROOMY, TIGHT))
        ]
        self._running: dict[int, list[Process]] = {}
        for number, client in enumerate(self.clients):
            open_state(client.folder, REGISTRY)
            processes = 2 if number == 1 else 1
            self._running[number] = [self._start(client) for _ in range(processes)]
            self.at(0.0, partial(self._live, number))

    def clock(self) -> float:
        return self.now

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def run(self) -> Day:
        while self._events and self._events[0][0] < MIDNIGHT + DAY:
            self.now, _, event = heapq.heappop(self._events)
            event()
        for number, client in enumerate(self.clients):
            client.waiting = self._running[number][0].outbox.waiting()
            for process in self._running[number]:
                process.end()
        return self

    def _live(self, number: int) -> None:
        """Let something happen to a client, and again after a while."""
        running, chance = self._running[number], self.chance
        at = chance.randrange(len(running))
        match chance.choices(["record", "flush", "restart"], [100, 2, 2])[0]:
            case "record":
                count = chance.choice([1, 1, 2, 5, 12])
                running[at].record(list(itertools.islice(self._report_numbers, count)))
            case "flush":
                running[at].flush()
            case _:
                running[at].end()
                running[at] = self._start(self.clients[number])
        if self.now < MIDNIGHT + DAY - 3600.0:
            self.at(chance.expovariate(1 / 150), partial(self._live, number))

    def _start(self, client: Client) -> Process:
        return Process(self, client, next(self._process_numbers))


REGISTRY = make_registry()
UNREACHABLE = failure(ConnectionRefusedError(), MIDNIGHT)
UNANSWERED = failure(TimeoutError(), MIDNIGHT)


def _forecast(chance: random.Random) -> tuple[list[float], list[Weather]]:
    """Return when the weather changes, and to what; every trouble comes, and ends in time."""
    troubles = [weather for weather in Weather if weather is not Weather.WELL]
    starts, weathers = [MIDNIGHT], [Weather.WELL]
    chance.shuffle(troubles)
    length = LAST_TROUBLE / (2 * len(troubles))
    for number, trouble in enumerate(troubles):
        start = MIDNIGHT + length * (2 * number + chance.uniform(0.2, 0.8))
        duration = 600.0 if trouble is Weather.TOO_LARGE else length * chance.uniform(0.5, 1.2)
        starts += [start, start + duration]
        weathers += [trouble, Weather.WELL]
    return starts, weathers
