"""Alphabets that strings may be written in: scripts, and what programs write in ASCII.

An alphabet is a set of whole characters and how likely each is, the same at every place. Scripts
follow from the names of characters in Python's Unicode tables; those that a national character set
has are common. A byte's chance follows from the characters that it begins or goes on with, so a
step that cuts within a character needs no rule of its own. Invariant: every printable character is
in an alphabet.
"""

from __future__ import annotations

import string
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter

import numpy as np

from hubbub.inference.arrays import FloatArray, IntArray

# Character sets of 8 bits, of the Far East, and of Vietnam: their letters are in daily use.
_NATIONAL = (
    *(f"iso8859_{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16)),
    *(f"cp125{number}" for number in range(9)),
    *("koi8_u", "tis_620", "gb2312", "big5", "shift_jis", "euc_kr"),
)
# How much likelier a character of daily use is, a small letter than a capital, and a letter of
# ASCII than another of Latin: guesses that decide what is looked at first.
_COMMON, _SMALL, _ASCII_LETTER = 20.0, 3.0, 20.0
_SMALL_PART = 0.5
"""Part of a script's strings that have no capitals."""
_FEWEST = 10
"""Characters of a script: smaller groups are looked for among all characters."""
ASCII = 0x80
"""The first code point beyond it."""
LEAST_END = 0.1
"""Chance that a string ends after any character, at least: too small a one loses short strings."""
_MARKS = " -.'_:/@"
# Parts of the characters in a script's strings: digits, and marks.
_DIGITS_PART, _MARKS_PART = 0.03, 0.06
_JOINERS = "\u200d\ufe0f\u20e3"
"""Parts of emoji: joiner, variation selector, key cap."""
_LOWER, _UPPER, _DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
# Parts of the characters, and of all strings before anything was learned.
_OF_PROGRAMS: tuple[tuple[float, dict[str, float]], ...] = (
    (0.03, {_UPPER: 0.84, "_": 0.11, _DIGITS: 0.05}),  # UPPER_CASE
    (0.03, {_LOWER: 0.82, "_-": 0.12, _DIGITS: 0.06}),  # snake_case, kebab-case
    (0.03, {_LOWER: 0.8, _UPPER: 0.15, _DIGITS: 0.05}),  # camelCase
    (0.04, {_DIGITS: 0.9, ".-:/,+ ": 0.1}),  # numbers, dates, versions
    (0.04, {_DIGITS: 0.625, "abcdef": 0.375}),  # hexadecimal
    (0.03, {_DIGITS: 0.625, "ABCDEF": 0.375}),
    (0.02, {_LOWER: 0.72, _DIGITS: 0.28}),  # base 36
    (0.02, {_LOWER: 0.42, _UPPER: 0.42, _DIGITS: 0.16}),  # base 62
    (0.02, {string.printable[:95]: 1.0}),  # all of ASCII
)
# Weights of all scripts together, and of all characters alike; findings soon outweigh them.
_SCRIPTS_WEIGHT, _ANY_WEIGHT = 0.2, 0.02
# Weight of a known alphabet: as much as all the others and words together.
_OWN_WEIGHT = 1.0


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Characters, and how likely each is."""

    weight: float  # part of all strings that are written in it, before anything was learned
    codes: IntArray  # shape (n,); code points, ascending
    chances: FloatArray  # shape (n,); sum to 1 with `end`
    end: float  # chance that a string ends after any character
    common: IntArray  # code points of daily use; in ASCII those that make up most of it


@cache
def alphabets(own: str = "") -> tuple[Alphabet, ...]:
    """Return all alphabets, and the strings' own one if its characters are known, each once."""
    return (*_any_alphabets(), _of_parts(_OWN_WEIGHT, {own: 1.0})) if own else _any_alphabets()


@cache
def _any_alphabets() -> tuple[Alphabet, ...]:
    national, scripts = _national(), _scripts()
    found = [_of_parts(weight, parts) for weight, parts in _OF_PROGRAMS]
    scripts = {name: codes for name, codes in scripts.items() if len(codes) >= _FEWEST}
    merits = {
        name: _COMMON if sum(code in national for code in codes) >= _FEWEST else 1.0
        for name, codes in scripts.items()
    }
    part = _SCRIPTS_WEIGHT / sum(merits.values())
    for name, codes in scripts.items():
        small = [code for code in codes if unicodedata.category(chr(code)) == "Ll"]
        small_part = _SMALL_PART if len(small) >= _FEWEST else 0.0
        found.append(_of_script((1 - small_part) * part * merits[name], codes, national))
        if small_part:
            found.append(_of_script(small_part * part * merits[name], small, national))
    everything = sorted({code for codes in _scripts().values() for code in codes} | _others())
    found.append(_of_script(_ANY_WEIGHT, everything, national))
    return tuple(found)


def _of_parts(weight: float, parts: dict[str, float]) -> Alphabet:
    chances: dict[int, float] = defaultdict(float)
    for characters, part in parts.items():
        for character in characters:
            chances[ord(character)] += part / len(characters)
    main, _ = max(parts.items(), key=itemgetter(1))
    return _alphabet(weight, chances, sorted(map(ord, main)))


def _of_script(weight: float, codes: Sequence[int], national: set[int]) -> Alphabet:
    chances: dict[int, float] = {}
    for code in codes:
        small = 1.0 if unicodedata.category(chr(code)) == "Lu" else _SMALL
        common = _COMMON if code in national else 1.0
        chances[code] = small * common * (_ASCII_LETTER if code < ASCII else 1.0)
    total = sum(chances.values())
    for characters, part in ((_DIGITS, _DIGITS_PART), (_MARKS, _MARKS_PART)):
        for character in characters:
            chances[ord(character)] = part * total / len(characters)
    return _alphabet(weight, chances, [code for code in codes if code in national])


def _alphabet(weight: float, chances: dict[int, float], common: Sequence[int]) -> Alphabet:
    codes = np.array(sorted(chances), dtype=np.int64)
    values = np.array([chances[code] for code in codes.tolist()])
    values *= (1 - LEAST_END) / values.sum()
    return Alphabet(weight, codes, values, LEAST_END, np.array(common, dtype=np.int64))


@cache
def _scripts() -> dict[str, list[int]]:
    """Return code points of letters and marks by script, and symbols with what joins them."""
    scripts: dict[str, list[int]] = defaultdict(list)
    for code in _assigned():
        category = unicodedata.category(chr(code))
        if category[0] in "LM":
            scripts[unicodedata.name(chr(code), "").partition(" ")[0]].append(code)
        elif category in {"So", "Sk"}:
            scripts["symbols"].append(code)
    scripts["symbols"] = sorted({*scripts["symbols"], *map(ord, _JOINERS)})
    # Written together: both kana with Han, as the national set has them.
    scripts["Japanese"] = sorted(
        {*scripts["HIRAGANA"], *scripts["KATAKANA"], *_in_set("shift_jis", scripts["CJK"])}
    )
    return dict(scripts)


def _others() -> set[int]:
    return {code for code in _assigned() if unicodedata.category(chr(code))[0] in "NPSZ"}


@cache
def _assigned() -> tuple[int, ...]:
    last = 0x32400  # all scripts end before it; variation selectors and tags follow far behind
    return tuple(code for code in range(0x20, last) if unicodedata.category(chr(code))[0] != "C")


def _in_set(encoding: str, codes: Sequence[int]) -> Iterator[int]:
    for code in codes:
        try:
            chr(code).encode(encoding)
        except UnicodeEncodeError:
            continue
        yield code


@cache
def _national() -> set[int]:
    """Return the code points beyond ASCII that national character sets have, and emoji."""
    found = set(range(0x1F300, 0x1F650)) | set(range(0x1F900, 0x1FA00)) | set(map(ord, _JOINERS))
    for encoding in _NATIONAL:
        width = range(0x80, 0x100)
        if encoding in {"gb2312", "big5", "shift_jis", "euc_kr"}:
            characters = [bytes([a, b]) for a in width for b in range(0x40, 0x100)]
        else:
            characters = [bytes([a]) for a in width]
        # No character has the line's end as its last byte.
        text = b"\n".join(characters).decode(encoding, errors="ignore")
        found.update(map(ord, text))
    return found - {ord("\n")}
