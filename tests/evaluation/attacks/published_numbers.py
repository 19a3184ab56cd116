"""Use what the admin listener publishes as a clock: when did a batch come, and of which metric?

The attacker may read, scrapes as often as he can, and sends batches of his own, so that a number
stands just below the value at which it would be shown to move. What he finds beyond the bounds of
docs/do/operate.md breaks them.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.attacks.outcome import Outcome
from factories import make_metric, make_report, registry_toml
from hubbub.client import Batch
from hubbub.collector import Metrics, Publisher, generate_secret
from hubbub.simulations import running_collector
from service.posting import post, send, wait_until, wait_until_published

_STEP = 2.0
_TOKEN, _HASH = generate_secret("admin")
_METRICS = (make_metric(), make_metric("search"))
_LIVE = ("hubbub_reload_failing",)
"""What no request moves, and which is published as it is."""

_REPORTS = 10
"""Of the batch that is looked for; its bound is a hundredth of it."""

_TOGETHER = 2_000
"""Trials that share a publisher, which rounds each metric apart."""

_SETTLING = 30.0
"""Seconds in which two services must come to show the same; some steps and upkeeps."""

_OF_THE_MACHINE = (
    *("process_", "hubbub_commit_seconds", "hubbub_request_seconds"),
    *("hubbub_store_", "hubbub_upkeep_"),
)
_TIMES = (
    *("published_at", "stored_at", "recent", "store_free_bytes", "upkeep"),
    *("commit_p99", "answer_p50", "answer_p99"),
)


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Date batches to less than a step, tell their metric, and the cohort of a report."""
    steps = 3 if quick else 15
    moved, sent = _moves_within_steps(steps)
    what = f"moments within {steps} steps at which a number moved, of {sent} batches"
    yield Outcome(what, moved, 0)
    yield Outcome("numbers that tell on which side of a restart a batch came", _by_restart(), 0)
    trials = 8_000 if quick else 50_000
    # P(false alarm) < 1e-6: six standard deviations of a difference of two shares, ten times.
    bound = _REPORTS / 100 + 6 * (0.5 / trials) ** 0.5
    what = f"of a batch of {_REPORTS} reports, by padding numbers to the brink"
    yield Outcome(f"advantage in telling the metric {what}", _advantage(_metric_of, trials), bound)
    yield Outcome(f"advantage in telling the step {what}", _advantage(_step_of, trials), bound)
    yield Outcome("numbers that tell the cohort of one of today's reports", _by_cohort(), 0)


class _Look(NamedTuple):
    """What was seen, and between which moments it was asked for and answered."""

    asked: float
    answered: float
    numbers: Any


def _moves_within_steps(steps: int) -> tuple[int, int]:
    """Return how often a number moved in the later half of a step, and how many batches came."""
    looks: list[_Look] = []
    with _collector(_STEP) as (url, admin):
        end = time.time() + _STEP * steps
        looking = threading.Thread(target=_look_until, args=(admin, end, looks))
        looking.start()
        chance, sent = random.Random(29), 0  # noqa: S311
        while time.time() < end:
            time.sleep(chance.uniform(0.0, 0.2))
            metric = chance.choice(_METRICS)
            reports = (make_report(metric, cohort=chance.randrange(64)),) * chance.randint(1, 150)
            assert post(url, Batch(reports)).status == 201
            sent += 1
        looking.join()
    moved = 0
    for before, after in itertools.pairwise(looks):
        is_one_step = before.asked // _STEP == after.answered // _STEP
        # Numbers are taken when a step begins; to read them from the store may take a while.
        is_later_half = before.asked % _STEP > _STEP / 2
        moved += is_one_step and is_later_half and before.numbers != after.numbers
    return moved, sent


def _look_until(admin: str, end: float, looks: list[_Look]) -> None:
    while time.time() < end:
        asked = time.time()
        numbers = _numbers(admin)
        looks.append(_Look(asked, time.time(), numbers))


def _numbers(admin: str) -> tuple[list[str], dict[str, Any]]:
    """Return all that requests could move on the admin listener."""
    headers = {"Authorization": f"Bearer {_TOKEN}"}
    lines = send(admin, "GET", "/metrics", headers=headers).body.decode().splitlines()
    status = send(admin, "GET", "/status.json", headers=headers).json
    live = ("at", "started")
    return (
        [line for line in lines if not line.startswith(("#", *_LIVE))],
        {name: value for name, value in status.items() if name not in live},
    )


def _advantage(see: Callable[[int, int, bool], float], trials: int) -> float:
    """Return the largest difference that one bit of truth makes to what is seen, over paddings."""
    found = 0.0
    for padding in (0, 50, 90, 95, 99):
        shares = [
            sum(see(padding, _TOGETHER, truth) for _ in range(trials // _TOGETHER))
            * _TOGETHER
            / trials
            for truth in (True, False)
        ]
        found = max(found, abs(shares[0] - shares[1]))
    return found


def _metric_of(padding: int, trials: int, truth: bool) -> float:
    """Return the share of trials in which the first of two metrics was seen to move.

    The batch is of that metric, or of the other.
    """
    reports = {}
    for trial in range(trials):
        reports[f"a{trial}"] = padding + _REPORTS * truth
        reports[f"b{trial}"] = padding + _REPORTS * (not truth)
    return _moved(reports, "a") / trials


def _step_of(padding: int, trials: int, truth: bool) -> float:
    """Return the share of trials in which a metric was seen to move at a step.

    The batch came before it, or after it.
    """
    reports = {f"a{trial}": padding + _REPORTS * truth for trial in range(trials)}
    return _moved(reports, "a") / trials


def _moved(reports: dict[str, int], of: str) -> int:
    """Return how many metrics whose names begin so are published after a step with reports."""
    metrics = Metrics()
    publisher = Publisher(metrics)
    publisher.step()
    for metric, n in reports.items():
        metrics.count("reports", metric, 1, n=n)
    publisher.step()
    return sum(labels[0].startswith(of) for labels, _ in publisher.values().by("reports"))


def _by_restart() -> int:
    """Return how many numbers tell whether a batch came before a restart or after it.

    It came between two steps, between which the collector was started again.
    """
    seen = []
    for is_before in (True, False):
        old, new = Metrics(), Metrics()
        _count_batch(old if is_before else new)
        publisher = Publisher(new)
        if not is_before:
            _count_batch(new)
        for _ in range(2):
            publisher.step()
        seen.append({name: n for name, n in publisher.values().items() if n < 1e9})
    return len(set(seen[0].items()) ^ set(seen[1].items()))


def _count_batch(metrics: Metrics) -> None:
    metrics.count("requests", 201, "stored")
    metrics.observe("request_seconds", 0.01)
    metrics.count("reports", "homepage", 1, n=150)
    metrics.count("improbable_reports", "homepage", n=2)
    metrics.observe("commit_seconds", 0.01)


def _by_cohort() -> int:
    """Return how many numbers go on to differ where one report's cohort does.

    Two services may count the same batches a step apart, or merge them; that passes.
    """
    with _collector(0.2) as one, _collector(0.2) as other:
        for (url, admin), cohort in ((one, 3), (other, 41)):
            chance = random.Random(29)  # noqa: S311
            reports = tuple(
                make_report(cohort=i % 64 if i else cohort, bits=chance.getrandbits(128))
                for i in range(200)
            )
            for half in (reports[:100], reports[100:]):
                assert post(url, Batch(half)).status == 201
            _wait_until_stored(admin, len(reports))
        end = time.monotonic() + _SETTLING
        while (differ := len(_shown(one[1]) ^ _shown(other[1]))) and time.monotonic() < end:
            time.sleep(0.1)
    return differ


def _shown(admin: str) -> set[str]:
    lines, status = _numbers(admin)
    numbers = {line for line in lines if not line.startswith(_OF_THE_MACHINE)}
    return numbers | {f"{name} {it}" for name, it in status.items() if name not in _TIMES}


def _wait_until_stored(admin: str, reports: int) -> None:
    wait_until(lambda: sum(it["reports"] for it in _numbers(admin)[1]["metrics"]) == reports)


@contextmanager
def _collector(step: float) -> Iterator[tuple[str, str]]:
    """Run a collector that publishes so often; yield its address and that of its admin listener."""
    with tempfile.TemporaryDirectory() as folder:
        metrics, config = Path(folder, "metrics.toml"), Path(folder, "collector.toml")
        metrics.write_text(registry_toml(*_METRICS), encoding="utf-8")
        config.write_text(
            f"admin_port = 0\npublish_seconds = {step}\nupkeep_seconds = 0.3\n"
            f'[admin_tokens.attacker]\nsha256 = "{_HASH}"\n',
            encoding="utf-8",
        )
        options = ["--config", str(config)]
        with running_collector(metrics, Path(folder, "hubbub.db"), options) as collector:
            admin = collector.read_admin_url()
            wait_until_published(admin, _TOKEN)
            yield collector.url, admin
