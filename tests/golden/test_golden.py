"""All commands print and write what they did when the files in `expected` were made.

After a change that is meant to change them: `make golden`, read the diff, say in the commit why.
"""

from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from golden.plain_text import difference, stable
from golden.running import EXPECTED, PROGRAMS, Case, kept_files, load_cases, program, run_case
from parameters import quick_but

_CASES = load_cases()
_SLOW = {"decode/open-strings", "plan/compare", "privacy/all", "simulate/run-open"}


def differences(case: Case, found: Mapping[Path, str], tolerance: float | None = None) -> str:
    """Return how what a case gave differs from what was kept of it, "" if it doesn't."""
    kept = kept_files(case)
    allowed = case.tolerance if tolerance is None else tolerance
    texts = []
    for path in sorted({*kept, *found}):
        if path not in found:
            texts.append(f"{path} isn't made any more")
        elif path not in kept:
            texts.append(f"{path} is new:\n{found[path]}")
        else:
            texts.append(difference(f"{case.name}/{path}", kept[path], found[path], allowed))
    return "\n".join(filter(None, texts))


@pytest.mark.parametrize("name", quick_but(_SLOW, _CASES))
def test_commands_give_what_they_gave(name):
    case = _CASES[name]
    wrong = differences(case, run_case(case))
    assert not wrong, f"{wrong}\n\nIf that is meant: make golden, and say why in the commit"


def test_nothing_is_kept_of_cases_that_there_are_no_more():
    kept = {path.parent.relative_to(EXPECTED).as_posix() for path in EXPECTED.glob("*/*/*")}
    assert {name for name in kept if name.count("/") == 1} == set(_CASES)


def test_the_help_of_every_command_is_kept():
    asked = {command for case in _CASES.values() for command in case.commands}
    for name in PROGRAMS:
        group = program(name)
        assert isinstance(group, click.Group)
        context = click.Context(group)
        for command in ("", *group.list_commands(context)):
            assert " ".join(filter(None, (name, command, "--help"))) in asked


def test_numbers_of_many_digits_may_differ_at_their_end():
    kept = stable("share 0.12345678901234, 5 rows", Path("/nowhere"))
    assert kept == "share 0.123456789~, 5 rows"
    near = stable("share 0.12345678999999, 5 rows", Path("/nowhere"))
    assert not difference("x", kept, near)
    assert difference("x", kept, stable("share 0.12346, 5 rows", Path("/nowhere")))
    assert difference("x", kept, kept.replace("5", "6"))
