"""How much tests notice: small faults put into a module one at a time, and how many are found.

`python -m evaluation.mutants MODULE TESTS... --mutants 40 --seed 1` writes each mutant into a copy
of the packages, never into the working tree, and runs the tests on it until the first failure. The
same seed makes the same mutants of the same module, so that tests can be compared before and after
a change. Survivors are lines to look at: some are equivalent, others no test has looked at.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import datetime as dt
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_DELIVERABLES = ("client", "collector", "decoder", "simulations")

# A mutant that loops is found by the clock: three times what the tests took, and ten seconds for a
# machine that became busy meanwhile.
_PATIENCE, _GRACE = 3, 10.0

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}


class Mutant(NamedTuple):
    """A module with one fault, and the line and the nature of that fault."""

    line: int
    fault: str
    source: str


def all_mutants(source: str) -> list[Mutant]:
    """Return every mutant of a module that these rules make, in the order of its lines."""
    tree = ast.parse(source)
    spared = _without_meaning(tree)
    mutants = []
    for index, node in enumerate(ast.walk(tree)):
        if id(node) in spared:
            continue
        for choice, replacement in enumerate(_faults(node)):
            changed = copy.deepcopy(tree)
            target = list(ast.walk(changed))[index]
            _replace(changed, target, list(_faults(target))[choice])
            fault = f"{_shown(node)}  ->  {_shown(replacement)}"
            mutants.append(Mutant(getattr(node, "lineno", 0), fault, ast.unparse(changed)))
    return sorted(mutants, key=lambda mutant: (mutant.line, mutant.fault))


def choose_mutants(source: str, number: int, seed: int) -> list[Mutant]:
    """Return so many mutants of a module, chosen by a seed, or all of them if there are fewer."""
    mutants = all_mutants(source)
    chance = random.Random(seed)  # noqa: S311 - a choice of mutants is no secret
    return sorted(chance.sample(mutants, min(number, len(mutants))))


def _faults(node: ast.AST) -> Iterator[ast.AST]:
    """Give what could stand in a node's place by a slip."""
    match node:
        case ast.Compare(left=left, ops=[operator, *rest], comparators=comparators):
            if swapped := _COMPARISONS.get(type(operator)):
                yield ast.Compare(left, [swapped(), *rest], comparators)
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.BinOp(left=left, op=operator, right=right):
            if other := _ARITHMETIC.get(type(operator)):
                yield ast.BinOp(left, other(), right)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(number) | float(number)):
            yield ast.Constant(number + 1)
            yield ast.Constant(number - 1)
        case ast.If(test=test, body=body, orelse=otherwise):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, otherwise)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case (
            ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Break() | ast.Continue()
        ):
            yield ast.Pass()


def _without_meaning(tree: ast.Module) -> set[int]:
    """Return the nodes where a fault would be none: docstrings, other texts, and annotations."""
    spared = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                spared.add(id(node))
            case (
                ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation)
            ):
                spared |= {id(part) for part in ast.walk(annotation)}
            case ast.FunctionDef(returns=ast.expr() as returns):
                spared |= {id(part) for part in ast.walk(returns)}
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                spared |= {id(part) for part in ast.walk(node)}
    return spared


def _replace(tree: ast.Module, target: ast.AST, replacement: ast.AST) -> None:
    class Replacer(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return replacement if node is target else self.generic_visit(node)

    ast.fix_missing_locations(Replacer().visit(tree))


def _shown(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0][:60]


class Copy:
    """The packages in a folder of their own, in which one module is a mutant after another."""

    def __init__(self, folder: Path, module: Path, tests: list[str]) -> None:
        for deliverable in _DELIVERABLES:
            shutil.copytree(
                ROOT / deliverable / "hubbub",
                folder / deliverable / "hubbub",
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        self._module = folder / module
        self._tests = tests
        self._examples = folder / "examples"
        # Before the working tree's own folders, which an editable install puts on the path. No
        # bytecode: two mutants of one size within a second would be taken for each other.
        places = [str(folder / deliverable) for deliverable in _DELIVERABLES]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(places),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Not those that failed before: each mutant has the same chances.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._examples),
        }

    def passes(self, source: str, seconds: float | None = None) -> bool:
        """Return whether all tests pass in time if this is the module."""
        self._module.write_text(source, encoding="utf-8")
        options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        command = [sys.executable, "-m", "pytest", *options, *self._tests]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end_group(process)
            shutil.rmtree(self._examples, ignore_errors=True)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def survivors(
    module: Path, tests: list[str], mutants: list[Mutant], copies: int = 1
) -> list[Mutant]:
    """Return the mutants of a module, as a path from the root, with which all tests pass."""
    with tempfile.TemporaryDirectory() as folder:
        idle: SimpleQueue[Copy] = SimpleQueue()
        first = Copy(Path(folder) / "0", module, tests)
        began = time.monotonic()
        if not first.passes((ROOT / module).read_text(encoding="utf-8")):
            sys.exit(f"{' '.join(tests)}: they don't pass as it is")
        patience = _GRACE + _PATIENCE * copies * (time.monotonic() - began)
        idle.put(first)
        for number in range(1, copies):
            idle.put(Copy(Path(folder) / str(number), module, tests))

        def survives(mutant: Mutant) -> bool:
            own = idle.get()
            try:
                return own.passes(mutant.source, patience)
            finally:
                idle.put(own)

        with ThreadPoolExecutor(copies) as pool:
            outcomes = pool.map(survives, mutants)
            return [mutant for mutant, lives in zip(mutants, outcomes, strict=True) if lives]


def main() -> None:
    """Print how many mutants are killed, and the lines of those that are not."""
    parser = argparse.ArgumentParser(prog="python -m evaluation.mutants", description=__doc__)
    parser.add_argument("module", type=Path, help="A path from the root.")
    parser.add_argument("tests", nargs="+", help="Files, folders or names, as pytest takes them.")
    parser.add_argument("--mutants", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--copies", type=int, default=1, help="How many run side by side.")
    given = parser.parse_args()
    source = (ROOT / given.module).read_text(encoding="utf-8")
    mutants = choose_mutants(source, given.mutants, given.seed)
    began = time.monotonic()
    alive = survivors(given.module, given.tests, mutants, given.copies)
    killed, seconds = len(mutants) - len(alive), time.monotonic() - began
    print(f"{given.module} by {' '.join(given.tests)}: {killed} of {len(mutants)} killed")
    print(
        f"  seed {given.seed}, {dt.datetime.now(dt.UTC):%Y-%m-%d}, {seconds:.0f} s on"
        f" {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    for mutant in alive:
        print(f"  {given.module}:{mutant.line}: {mutant.fault}")


if __name__ == "__main__":
    main()
