"""Dimensions that both clients take for the same, though each language has its own expressions."""

import random
from typing import Any

from hubbub.protocol import MetricError, read_dimensions
from unit.javascript.node import run_script

PROGRAM = """
import { isTold, makeDimensions } from "./src/dimensions.js";
const answer = job.map(({ pattern, values }) => {
  try {
    const dimension = makeDimensions({ release: { pattern } }).get("release");
    return values.map((value) => isTold(dimension, value));
  } catch (error) {
    return error.name;
  }
});
"""
ATOMS = ["a", "B", "7", "-", "_", r"\d", r"\.", "[a-c]", "[b]", "[A-z]", "[0-9._]", "[a-cx-z9]"]
TIMES = ["", "", "", "?", "+", "*", "{2}", "{0,1}", "{1,3}", "{00,02}"]
WRONG = [".", "(", ")", "|", "^", "$", "[", "]", "[]", "[^a]", "[c-a]", "{", "}", "{2,1}", "{2,}"]
WRONG += ["\\", r"\w", r"\n", "\n", "++", "*?", "é", "\u0661", "\udc00", "[a-]", "[-a]", "[a--c]"]
CHARACTERS = "aaabcBxz7709-_.\\^\n \u0661"


def jobs(count: int) -> list[dict[str, Any]]:
    """Return patterns, a third of them wrong, and values, of which many match."""
    rng = random.Random(7)  # noqa: S311
    made = []
    for _ in range(count):
        parts = [rng.choice(ATOMS) + rng.choice(TIMES) for _ in range(rng.randint(1, 4))]
        if rng.random() < 1 / 3:
            parts.insert(rng.randint(0, len(parts)), rng.choice(WRONG))
        values = ["".join(rng.choices(CHARACTERS, k=rng.randint(0, 5))) for _ in range(40)]
        made.append({"pattern": "".join(parts), "values": [*values, "other", 33 * "a"]})
    return made


def as_python_reads_it(job: dict[str, Any]) -> list[bool] | str:
    try:
        dimension = read_dimensions("d", {"release": {"pattern": job["pattern"]}})["release"]
    except MetricError:
        return "MetricError"
    return [dimension.has(value) for value in job["values"]]


def test_both_clients_read_patterns_alike():
    made = jobs(2000)
    expected = [as_python_reads_it(job) for job in made]
    for job, here, there in zip(made, expected, run_script(PROGRAM, made), strict=True):
        assert here == there, job
    refused = sum(answer == "MetricError" for answer in expected)
    assert 200 < refused < 1800
    assert sum(sum(answer) for answer in expected if isinstance(answer, list)) > 500
