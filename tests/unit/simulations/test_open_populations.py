"""Populations that a search without a list is measured on."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest

from evaluation.unlike_populations import CORPORA, HELD_OUT, SCRIPTS, TUNED, four
from hubbub.protocol import canonical_bytes
from hubbub.simulations import Population

FOURS = {script: partial(four, script) for script in SCRIPTS}
ALL: dict[str, Callable[[], Population]] = {**TUNED, **HELD_OUT, **FOURS}


@pytest.mark.parametrize("name", ALL)
def test_a_population_is_what_clients_can_hold_and_the_same_each_time(name):
    people, again = ALL[name](), ALL[name]()
    assert people.values == again.values
    assert people.shares.tolist() == again.shares.tolist()
    assert people.shares.sum() == pytest.approx(1)
    assert len(set(people.values)) == len(people.values)
    sent = [canonical_bytes(value) for value in people.values]
    assert sent == [value.encode() for value in people.values]
    assert max(map(len, sent)) <= 48


def test_identifiers_are_the_same_whatever_was_imported():
    """A package's modules are attributes of it once they are imported, here or by other tests."""
    program = (
        "import ctypes.util, multiprocessing.managers, unittest.mock, xml.dom.minidom\n"
        "from evaluation.unlike_populations import identifiers\n"
        "print(*identifiers().values)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.split() == list(TUNED["identifiers"]().values)
    assert "managers" not in done.stdout.split()


def test_identifiers_are_of_every_case():
    names = TUNED["identifiers"]().values
    assert len(names) == 3_000
    assert any(name.isupper() for name in names[:100])
    assert any("_" in name and name.islower() for name in names[:100])
    assert any(name.istitle() for name in names)


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_gives_no_string_away_and_is_the_same_each_time(name):
    corpus = CORPORA[name]()
    assert CORPORA[name]() == corpus
    assert len(set(corpus)) == len(corpus) > 300
    assert not set(corpus) & set(ALL[name]().values)
