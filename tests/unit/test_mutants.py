"""Mutants of a module: which faults are made, and which of them tests notice."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from evaluation.mutants import ROOT, Mutant, all_mutants, choose_mutants, survivors

EVENS = '''
"""Up to 9 of them."""
from typing import Literal

def evens(numbers: list[Literal[2]], most: int = 9) -> list[int]:
    """Return up to 9."""
    found = []
    for number in numbers:
        if number % 2 == 0 and not len(found) >= most:
            found.append(number)
    return found
'''


def test_faults_are_those_of_slips_and_none_is_in_a_text_or_an_annotation():
    assert {mutant.fault for mutant in all_mutants(EVENS)} == {
        "9  ->  10",
        "9  ->  8",
        "2  ->  3",
        "2  ->  1",
        "0  ->  1",
        "0  ->  -1",
        "number % 2  ->  number // 2",
        "number % 2 == 0  ->  number % 2 != 0",
        "len(found) >= most  ->  len(found) > most",
        "not len(found) >= most  ->  len(found) >= most",
        "number % 2 == 0 and (not len(found) >= most)"
        "  ->  number % 2 == 0 or not len(found) >= most",
        "if number % 2 == 0 and (not len(found) >= most):"
        "  ->  if not (number % 2 == 0 and (not len(found) >= most)):",
        "found.append(number)  ->  pass",
        "return found  ->  return None",
    }


def test_each_mutant_is_another_module_than_the_rest():
    sources = [mutant.source for mutant in all_mutants(EVENS)]
    assert len({*sources, ast.unparse(ast.parse(EVENS))}) == len(sources) + 1


def test_the_same_seed_chooses_the_same_mutants():
    assert choose_mutants(EVENS, 5, 1) == choose_mutants(EVENS, 5, 1)
    assert choose_mutants(EVENS, 5, 1) != choose_mutants(EVENS, 5, 2)
    assert choose_mutants(EVENS, 1000, 1) == sorted(all_mutants(EVENS))


def test_survivors_are_found_in_a_copy():
    module = Path("client/hubbub/protocol/bloom.py")
    before = (ROOT / module).read_text(encoding="utf-8")
    harmless = Mutant(1, "none", f"{before}\n")
    broken = Mutant(1, "no module", "raise ImportError")
    tests = ["tests/unit/client/test_bloom.py"]
    assert survivors(module, tests, [harmless, broken], copies=2) == [harmless]
    assert (ROOT / module).read_text(encoding="utf-8") == before


def test_tests_that_fail_anyhow_are_refused(tmp_path):
    failing = tmp_path / "test_failing.py"
    failing.write_text("def test_it():\n    assert False\n")
    with pytest.raises(SystemExit, match="they don't pass as it is"):
        survivors(Path("client/hubbub/protocol/bloom.py"), [str(failing)], [])
