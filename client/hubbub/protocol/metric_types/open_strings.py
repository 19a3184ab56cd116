"""Texts that no list holds, found prefix by prefix: the type "open-string".

A client's cohort fixes one step, and its reports depend on the value up to that step only: on its
first bytes, or at the last step on all of it (Wang, Li, Jha: "Locally differentially private heavy
hitter identification", arXiv 1708.06674). Invariant: a cohort belongs to one step, so a client that
keeps its cohort answers one question, and the epsilons are those of a single string.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubbub.protocol.bloom import byte_positions, canonical_bytes
from hubbub.protocol.checks import ascending_integers
from hubbub.protocol.errors import MetricError
from hubbub.protocol.metric_types.base import MetricType, Value
from hubbub.protocol.params import MOST_COHORTS

if TYPE_CHECKING:
    from typing import Self

    from hubbub.protocol.params import RapporParams

MOST_STEPS = 8
"""Each step has its own clients: with eight, an eighth of them."""
LONGEST_STEP = 64
"""What is longer differs before its 64th byte, and the last step asks the whole text."""
TERMINATOR = b"\xff"
"""Follows a value where it is cut: no UTF-8 has this byte, so "at" isn't the beginning of "ate"."""


class OpenStringType(MetricType):
    """Any text, of which a client reports the beginning up to one step.

    `steps`: lengths of the prefixes, in bytes of UTF-8, ascending. After them comes the last step,
    the whole value, so there is one step more than lengths. `cohorts`: cohorts a step. Cohort c of
    the metric is cohort ``c % cohorts`` of step ``c // cohorts``.
    """

    __slots__ = ("cohorts", "steps")
    name = "open-string"
    keys = ("steps", "k", "m")
    optional_keys = ("h",)

    def __init__(self, steps: tuple[int, ...], cohorts: int) -> None:
        self.steps = steps
        self.cohorts = cohorts

    @classmethod
    def from_table(cls, where: str, table: Mapping[str, Any]) -> Self:
        """Read the steps, and the cohorts of each."""
        steps = ascending_integers(f"{where}.steps", table["steps"], MOST_STEPS, 1, LONGEST_STEP)
        h, m, most = table.get("h", 1), table["m"], MOST_COHORTS // (len(steps) + 1)
        if isinstance(h, bool) or h != 1:
            raise MetricError.of(f"{where}.h", h, "1, or left out, for an open-string")
        if isinstance(m, bool) or not isinstance(m, int) or not 1 <= m <= most:
            raise MetricError.of(
                f"{where}.m",
                m,
                f"an integer between 1 and {most}, the cohorts of each of {len(steps) + 1} steps",
            )
        return cls(steps, m)

    def filter_size(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return k as the table has it, one hash, and the cohorts of all steps."""
        return {"k": table["k"], "h": 1, "m": (len(self.steps) + 1) * self.cohorts}

    def definition(self) -> dict[str, object]:
        """Return the steps, and the cohorts of each."""
        return {"steps": list(self.steps), "cohorts": self.cohorts}

    def bits(self, value: Value, cohort: int, params: RapporParams) -> int:
        """Return the Bloom filter of the prefix at the cohort's step (EncodingError)."""
        hashed = self.prefix(canonical_bytes(value), cohort // self.cohorts)
        (position,) = byte_positions(hashed, self.hashed_cohort(cohort), params)
        return 1 << position

    def hashed_cohort(self, cohort: int) -> int:
        """Return the number with which a cohort's filters are hashed, another for each.

        The last step's are 0 to ``cohorts - 1``, as of a string metric; the others' follow.
        """
        return (cohort + self.cohorts) % ((len(self.steps) + 1) * self.cohorts)

    def parts(self) -> tuple[str, ...]:
        """Return a beginning for each step, and the whole."""
        return (*map(_beginning, self.steps), "the whole")

    def part(self, cohort: int) -> str:
        """Return the beginning that is reported in a cohort, or the whole."""
        return self.parts()[cohort // self.cohorts]

    def prefix(self, value: bytes, step: int) -> bytes:
        """Return what is hashed of a value's canonical bytes at a step: 0 to ``len(steps)``.

        A value that ends before the step is followed by the terminator. A cut may split a
        character.
        """
        if step == len(self.steps):
            return value
        length = self.steps[step]
        return (value[:length] + TERMINATOR)[:length]

    def step_params(self, params: RapporParams) -> RapporParams:
        """Return the parameters of one step's reports: as the metric's, with `cohorts` cohorts."""
        return params._replace(m=self.cohorts)


def _beginning(length: int) -> str:
    of_bytes = "byte (a letter," if length == 1 else f"{length} bytes (letters,"
    return f"only the first {of_bytes} for plain English text)"
