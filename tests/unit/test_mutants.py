"""Mutants of a module: which faults are made, and which of them tests notice."""

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
        if number % 2 == 0 and len(found) < most:
            found.append(number)
    return found
'''
BOTH = "number % 2 == 0 and len(found) < most"


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
        "len(found) < most  ->  len(found) <= most",
        f"{BOTH}  ->  number % 2 == 0 or len(found) < most",
        f"if {BOTH}:  ->  if not ({BOTH}):",
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


BLOOM = Path("client/hubbub/protocol/bloom.py")


@pytest.fixture
def test_file(tmp_path):
    """Return a test that imports the module, and one that fails whatever the module is."""
    path = tmp_path / "test_it.py"
    path.write_text(
        "import hubbub.protocol.bloom\ndef test_it(): pass\ndef test_failing(): raise OSError\n"
    )
    return path


@pytest.mark.long
def test_survivors_are_found_in_a_copy(test_file):
    before = (ROOT / BLOOM).read_text(encoding="utf-8")
    harmless = Mutant(1, "none", f"{before}\n")
    broken = Mutant(1, "no module", "raise ImportError")
    assert survivors(BLOOM, [f"{test_file}::test_it"], [harmless, broken]) == [harmless]
    assert (ROOT / BLOOM).read_text(encoding="utf-8") == before


def test_tests_that_fail_anyhow_are_refused(test_file):
    with pytest.raises(SystemExit, match="they don't pass as it is"):
        survivors(BLOOM, [str(test_file)], [])
