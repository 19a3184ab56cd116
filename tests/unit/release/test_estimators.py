"""Estimators in processes of their own: what they return, how they fail, what they leave behind."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hubbub.release import QueryError
from hubbub.release.estimator_host import Block
from hubbub.release.estimators import run_estimator

MODULE = """
import ctypes, os, random, signal, subprocess, sys, time
import numpy as np

seen = []

def mean(block):
    print("secret"); print("secret", file=sys.stderr); os.write(1, b"secret")
    return block["x"].mean()

def calls(block):
    seen.append(block)
    return len(seen)

def fails(block):
    x = block["x"][0]
    if x == 0: raise ValueError("secret")
    if x == 1: sys.exit(3)
    if x == 2: os.kill(os.getpid(), signal.SIGKILL)
    if x == 3: ctypes.string_at(0)
    if x == 4: return float("nan")
    if x == 5: return -np.inf
    if x == 6: return "7"
    if x == 7: return None
    if x == 8: return np.array([1.0, 2.0])
    if x == 9: return 1j
    if x == 10: return 10**400
    if x == 11: os.kill(os.getppid(), signal.SIGKILL)
    if x == 13: return np.array(x)
    return np.float32(x)

def sleeps(block):
    child = subprocess.Popen(["sleep", "1000"])
    with open(str(block["file"][0]), "a") as file:
        file.write(f"{os.getppid()} {os.getpid()} {child.pid}\\n")
    time.sleep(1000)

def drawn(block):
    return random.random() if block["x"][0] else np.random.random()

def hides(block):
    return len(block["city"]) if block["city"][0] == "Köln" else 0.5

class Namespace:
    @staticmethod
    def one(block):
        return True

number = 1
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A current directory with a module of estimators."""
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name: str, blocks: Sequence[Block], seconds: float = 20, processes: int = 2) -> list[float]:
    told: list[tuple[int, int]] = []
    found = run_estimator(
        name,
        blocks,
        default=-1,
        seconds=seconds,
        processes=processes,
        progress=lambda done, of: told.append((done, of)),
    )
    assert told == [(done, len(blocks)) for done in range(1, len(blocks) + 1)]
    assert found.dtype == np.float64
    return [float(value) for value in found]


def numbered(count: int) -> list[Block]:
    return [{"x": np.array([float(i), i + 1.0])} for i in range(count)]


def test_estimates_are_in_the_order_of_blocks_and_nothing_is_printed(capfd):
    assert run("mine:mean", numbered(12)) == [i + 0.5 for i in range(12)]
    assert capfd.readouterr() == ("", "")
    assert "mine" not in sys.modules


def test_every_block_finds_the_module_as_it_was_imported():
    assert run("mine:calls", numbered(6), processes=1) == [1.0] * 6


def test_failures_of_all_kinds_become_the_default():
    """The last ones also end the host, which another one replaces."""
    found = run("mine:fails", numbered(14))
    assert found == [-1.0] * 12 + [12.0, 13.0]


def test_blocks_draw_numbers_of_their_own():
    zeros, ones = [{"x": np.zeros(1)}] * 4, [{"x": np.ones(1)}] * 4
    assert len(set(run("mine:drawn", [*zeros, *ones]))) == 8


def test_large_blocks_arrive_or_are_left_unread():
    """More than a pipe holds; an estimator that raises has read all, one that is killed hasn't."""
    large = {"x": np.arange(1e6)}
    assert run("mine:mean", [large, large]) == [499_999.5] * 2


def alive(process: int) -> bool:
    """Whether there is such a process, and not just what its parent hasn't asked about yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ended(processes: list[int]) -> bool:
    for _ in range(100):
        if not any(alive(process) for process in processes):
            return True
        time.sleep(0.05)
    return False


def test_slow_estimators_are_killed_with_what_they_have_started(folder):
    block = {"file": np.array([str(folder / "started")])}
    assert run("mine:sleeps", [block, block], seconds=0.5) == [-1.0, -1.0]
    started = [int(part) for part in (folder / "started").read_text().split()]
    assert len(set(started)) == 6
    assert ended(started)


INTERRUPTED = """
import sys, numpy as np
from hubbub.release.estimators import run_estimator
block = {"file": np.array(["started"])}
run_estimator("mine:sleeps", [block] * 9, default=0, seconds=600, processes=2, progress=print)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_process_behind(folder, sent):
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stderr=subprocess.PIPE)
    file = folder / "started"
    for _ in range(400):
        if file.exists() and len(file.read_text().split()) == 6:
            break
        time.sleep(0.05)
    started = [int(part) for part in file.read_text().split()]
    assert len(set(started)) == 6  # two hosts, two processes and what these have started
    assert all(alive(found) for found in started)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=20)
    assert (b"KeyboardInterrupt" in errors) == (sent == signal.SIGINT)
    assert ended(started)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mine", "must be module:function"),
        ("mine.py:mean:x", "must be module:function"),
        ("../mine:mean", "must be module:function"),
        ("nowhere:mean", "can't be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("mine:median", "there is no median in mine"),
        ("mine:number", "must be a function"),
        ("broken:mean", "can't be imported: SyntaxError"),
        ("leaves:mean", "can't be imported: SystemExit: 3"),
        ("dies:mean", "its process ended while it was imported"),
    ],
)
def test_functions_that_are_not_there_are_named(folder, name, reason):
    (folder / "broken.py").write_text("def mean(")
    (folder / "leaves.py").write_text("import sys; sys.exit(3)")
    (folder / "dies.py").write_text("import os; os._exit(0)")
    with pytest.raises(QueryError, match=f"estimator = '{name}': {reason}"):
        run(name, numbered(2))
