"""Findings: what is said beside estimates, and of a registry.

A finding has a code for programs and words for people; no code reads the words. Needs no other
package, so that a collector has it at its start.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Level(IntEnum):
    """How much a finding matters to a reader.

    A fact is told because it belongs to the picture; a warning must not be overlooked; an alarm is
    what honest clients would hardly cause.
    """

    FACT = 0
    WARNING = 1
    ALARM = 2


class Finding(NamedTuple):
    """Something that is said beside the rows.

    Attributes
    ----------
    code : str
        Names it for programs, and never changes: "detection_limit".
    label : str
        Names it for people, where findings stand one below the other; empty: `text` is a sentence.
    text : str
        What was found, in words.
    value : object
        The number behind it, or None: anything that JSON has.
    level : Level
    """

    code: str
    label: str
    text: str
    value: object = None
    level: Level = Level.FACT

    @property
    def shown(self) -> str:
        """The text as people see it: an alarm begins with one."""
        return f"SUSPICIOUS: {self.text}" if self.level is Level.ALARM else self.text

    @property
    def labelled(self) -> str:
        """The text as people see it by itself, behind its label if it has one."""
        return f"{self.label}: {self.shown}" if self.label else self.shown

    def as_json(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return {
            "level": self.level.name.lower(),
            "code": self.code,
            "label": self.label,
            "value": self.value,
            "text": self.text,
        }
