"""A number and what is counted -> words for people: "1 report", "2,500 reports".

Every command's messages and pages count something; this is where one is not "1 reports".
"""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s unless there is one.

    `noun`: of one: "report", "batch id". Returns thousands are set off by commas.

    Examples
    --------
    >>> counted(1, "report"), counted(2500, "report")
    ('1 report', '2,500 reports')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
