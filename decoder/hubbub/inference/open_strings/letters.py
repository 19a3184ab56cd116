"""Alphabets, and letter models: how likely each byte, or the end, comes after what stands before.

An alphabet is a set of whole characters and how likely each is, the same at every place: a script,
or what programs write in ASCII. Scripts follow from the names of characters in Python's Unicode
tables; those that a national character set has are common. A byte's chance follows from the
characters that it begins or goes on with, so a step that cuts within a character needs no rule of
its own. One model has English frequencies of letters after each kind of letter (`WordModel`),
another has learned what follows two bytes (`Ngrams`), and
`hubbub.inference.open_strings.mixture` puts them together. Invariant: every printable character is
in an alphabet, and only sequences that are UTF-8, or the beginning of UTF-8, have a chance above 0.
"""

from __future__ import annotations

import string
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from hubbub.inference.arrays import FloatArray, IntArray

SymbolArray = NDArray[np.uint16]
"""Bytes, and END."""

END = 256
"""The symbol after a string's last byte."""
BEFORE = 257
"""The symbol before a string's first byte."""
ANYTHING = 258
"""Stands for a last symbol but one that nothing was learned about."""
N_SYMBOLS = 257

STATES = 4
"""More than a character can still need bytes."""

# Bytes, END and BEFORE.
_CONTEXT = 258
# UTF-8: C0 and C1 would begin characters that one byte has. A byte that goes on has six bits of the
# code point; characters of one to four bytes begin at the least codes, with the bits of the leads.
_FIRST_LEAD, _TRAILS = 0xC2, 64
_LEAST_CODES, _LEADS = (0, 0x80, 0x800, 0x10000, 0x110000), (0, 0xC0, 0xE0, 0xF0)
# Keeps quotients finite where nothing is possible.
_TINY = 1e-300
# Weights of a model that steers and isn't tested: a tenth of strings ends after any character, a
# tenth is spread evenly over all bytes, so that nothing is impossible. Real frequencies are learned
# from what is found.
_UNIFORM = 0.1
# Occurrences by which what was learned weighs as much as the coarser model that it backs off to:
# one, two and no symbols before.
_TRUST = (20.0, 10.0, 10.0)

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


# Letters of English by frequency, in percent; a percent more for each, since names and other
# languages use rare letters more.
_LETTERS = "etaoinsrhldcumfpgwybvkxjqz"
_FREQUENCIES = (
    12.7, 9.1, 8.2, 7.5, 7.0, 6.7, 6.3, 6.0, 6.1, 4.0, 4.3, 2.8, 2.8, 2.4, 2.2, 1.9, 2.0, 2.4,
    2.0, 1.5, 1.0, 0.8, 0.15, 0.15, 0.1, 0.07,
)  # fmt: skip
_FLOOR = 1.0
_VOWELS = "aeiouy"
_WORD_MARKS = " .-_/:"
_COMMON_LEADS = (
    b"\xc3\xce\xcf\xd0\xd1\xd7\xd8\xd9\xe0\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xeb\xec\xed\xf0"
)
"""First bytes of accented Latin, Greek, Cyrillic, Hebrew, Arabic, Indic, CJK and emoji."""
_FOLLOWERS = {
    "before": (0.16, 0.32, 0.08, 0.21, 0.11, 0.04),
    "vowel": (0.22, 0.66, 0.01, 0.02, 0.04, 0.03),
    "consonant": (0.56, 0.33, 0.01, 0.01, 0.04, 0.03),
    "upper vowel": (0.14, 0.53, 0.06, 0.20, 0.02, 0.03),
    "upper consonant": (0.52, 0.20, 0.16, 0.07, 0.02, 0.02),
    "digit": (0.07, 0.16, 0.02, 0.04, 0.55, 0.14),
    "mark": (0.17, 0.36, 0.06, 0.16, 0.16, 0.06),
    "other": (0.12, 0.20, 0.01, 0.02, 0.02, 0.08),
}
"""Chance of a vowel, a consonant, both as capitals, a digit and a mark; the rest is for others."""


def _classes() -> FloatArray:
    """Return the chances of symbols within each of six classes, and of all others; (7, 257)."""
    alphabets = np.zeros((7, N_SYMBOLS))
    for letter, frequency in zip(_LETTERS, _FREQUENCIES, strict=True):
        consonant = letter not in _VOWELS
        chance = frequency + _FLOOR
        alphabets[int(consonant), ord(letter)] = chance
        alphabets[2 + consonant, ord(letter.upper())] = chance
    alphabets[4, 0x30:0x3A] = 1
    alphabets[5, [ord(mark) for mark in _WORD_MARKS]] = 1
    alphabets[6, 0x20:0x7F] = alphabets[:6, 0x20:0x7F].sum(axis=0) == 0
    alphabets[6, :0x20] = alphabets[6, 0x7F] = 0.001
    alphabets[6, 0x80:0xF5] = 0.2
    alphabets[6, list(_COMMON_LEADS)] = 3
    return np.asarray(alphabets / alphabets.sum(axis=1, keepdims=True))


def _followers() -> tuple[FloatArray, IntArray]:
    """Return what follows a symbol of each class, (8, 257), and each symbol's class, (258,)."""
    alphabets = _classes()
    mixed = np.array([(*shares, 1 - sum(shares)) for shares in _FOLLOWERS.values()])
    start = (1 - LEAST_END) * mixed @ alphabets
    start[:, END] = LEAST_END
    classes = np.full(_CONTEXT, len(_FOLLOWERS) - 1, dtype=np.int64)
    for number in range(6):
        classes[np.flatnonzero(alphabets[number])] = 1 + number
    classes[BEFORE] = 0
    return start, classes


class WordModel:
    """Words, names and addresses: letters of English frequencies, by the kind of the last one."""

    def relevant(
        self, before: IntArray, last: IntArray, states: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Keep the last symbol, and how many bytes its character still needs."""
        return np.full_like(before, ANYTHING), last, states % STATES

    def chances(self, before: IntArray, last: IntArray, states: IntArray) -> FloatArray:  # noqa: ARG002
        """Return the chances of symbols after the kind of the last one."""
        return utf_8(_START[_CLASSES[last]], last, states)


@dataclass(frozen=True, slots=True)
class CharacterTree:
    """Bytes that begin and continue characters, whatever their chances."""

    leads: IntArray  # shape (n,); each character's first byte
    # Shape (t,); beginnings of characters that go on, ascending: their bytes as one number.
    nodes: IntArray
    # Shape (s,); for each byte of a character behind its first, its node's row times 64, plus its
    # six bits.
    cells: IntArray
    owners: IntArray  # shape (s,); which character it is a byte of

    @classmethod
    def of(cls, codes: IntArray) -> CharacterTree:
        """Return the tree of some code points, which ascend."""
        leads = np.empty(len(codes), dtype=np.int64)
        nodes, trails, owners = [leads[:0]], [leads[:0]], [leads[:0]]
        edges = np.searchsorted(codes, _LEAST_CODES)
        for size, (low, high) in enumerate(pairwise(edges.tolist()), 1):
            some = codes[low:high]
            node = leads[low:high] = (some >> (6 * (size - 1))) | _LEADS[size - 1]
            for place in range(size - 2, -1, -1):
                trail = (some >> (6 * place)) & (_TRAILS - 1)
                nodes.append(node)
                trails.append(trail)
                owners.append(np.arange(low, high))
                node = node << 8 | 0x80 | trail
        different, where = np.unique(np.concatenate(nodes), return_inverse=True)
        cells = where * _TRAILS + np.concatenate(trails)
        return cls(leads, different, cells, np.concatenate(owners))


class AlphabetModel:
    """The characters of an alphabet, equally likely at every place.

    `tree`: of its characters; built from them if not given.
    """

    def __init__(self, alphabet: Alphabet, tree: CharacterTree | None = None) -> None:
        tree = tree or CharacterTree.of(alphabet.codes)
        root = np.bincount(tree.leads, alphabet.chances, N_SYMBOLS)
        self.root: FloatArray = root.astype(np.float64)
        self.root[END] = alphabet.end
        self._nodes = tree.nodes
        masses = np.bincount(tree.cells, alphabet.chances[tree.owners], len(tree.nodes) * _TRAILS)
        self._masses = masses.reshape(-1, _TRAILS)

    def relevant(
        self, before: IntArray, last: IntArray, states: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Return contexts with all but the bytes of an unfinished character made alike.

        `before` and `last`, shape (c,): the last symbol but one, or `ANYTHING`, and the last.
        `states`, shape (c,): of the last character (`state_after`).
        """
        begun = states % STATES > 0
        second = begun & (last < _FIRST_LEAD)
        return (
            np.where(second, before, ANYTHING),
            np.where(begun, last, 0),
            np.where(begun, states, 0),
        )

    def chances(self, before: IntArray, last: IntArray, states: IntArray) -> FloatArray:
        """Return the chances of first bytes, or of those that follow in a character."""
        chances = np.zeros((len(last), N_SYMBOLS))
        begun = states % STATES > 0
        chances[~begun] = self.root
        if begun.any():
            masses, totals = self._begun(before[begun], last[begun], states[begun])
            chances[begun, 0x80 : 0x80 + _TRAILS] = masses / np.maximum(totals, _TINY)[:, None]
        return chances

    def begun(self, before: IntArray, last: IntArray, states: IntArray) -> FloatArray:
        """Return the chance of what an unfinished character begins with, 1 if there is none."""
        chances = np.ones(len(last))
        begun = states % STATES > 0
        if begun.any():
            chances[begun] = self._begun(before[begun], last[begun], states[begun])[1]
        return chances

    def _begun(
        self, before: IntArray, last: IntArray, states: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mass of each byte that goes on, shape (c, 64), and their sums."""
        if not len(self._nodes):
            return np.zeros((len(last), _TRAILS)), np.zeros(len(last))
        first, pending = np.divmod(states, STATES)
        size = 1 + _NEEDS[first] - pending
        node = np.where(size > 1, before << 8 | last, last)
        node = np.where(size > 2, first << 16 | node, node)
        place = np.minimum(np.searchsorted(self._nodes, node), len(self._nodes) - 1)
        masses = self._masses[place] * (self._nodes[place] == node)[:, None]
        return masses, masses.sum(axis=1)


@dataclass(frozen=True, slots=True)
class Ngrams:
    """Learned weights of symbols after the last two, backing off to one and to none."""

    single: FloatArray  # shape (257,)
    pairs: FloatArray  # shape (258, 257); after one symbol
    contexts: IntArray  # shape (c,); numbers of the pairs of symbols that were seen, ascending
    triples: FloatArray  # shape (c, 257); weights of what came after them

    @classmethod
    def nothing(cls) -> Ngrams:
        """Return the model that has seen nothing."""
        nothing = np.zeros((0, N_SYMBOLS))
        pairs = np.zeros((_CONTEXT, N_SYMBOLS))
        return cls(np.zeros(N_SYMBOLS), pairs, np.zeros(0, dtype=np.int64), nothing)

    @property
    def seen(self) -> float:
        """How many symbols were learned from."""
        return float(self.single.sum())

    def learned(self, symbols: SymbolArray, weights: FloatArray, begin: int) -> Ngrams:
        """Return the model that has also seen some sequences.

        `symbols`, shape (n, length): END from the end on. `weights`, shape (n,): how many times
        each counts. `begin`: the first place that wasn't learned before.
        """
        single, pairs = self.single.copy(), self.pairs.copy()
        codes, followers, added = [], [], []
        for place in range(begin, symbols.shape[1]):
            before, last = contexts_at(symbols, place)
            live = last != END
            symbol, weight = symbols[live, place].astype(np.int64), weights[live]
            np.add.at(single, symbol, weight)
            np.add.at(pairs, (last[live], symbol), weight)
            codes.append(before[live] * _CONTEXT + last[live])
            followers.append(symbol)
            added.append(weight)
        code = np.concatenate([self.contexts, *codes])
        contexts, where = np.unique(code, return_inverse=True)
        triples = np.zeros((len(contexts), N_SYMBOLS))
        triples[where[: len(self.contexts)]] = self.triples
        rows = where[len(self.contexts) :]
        np.add.at(triples, (rows, np.concatenate(followers)), np.concatenate(added))
        return Ngrams(single, pairs, contexts, triples)

    def matters(self, before: IntArray, last: IntArray) -> IntArray:
        """Return the last symbols but one, `ANYTHING` where nothing was learned about them."""
        if not len(self.contexts):
            return np.full_like(before, ANYTHING)
        code = before * _CONTEXT + last
        place = np.minimum(np.searchsorted(self.contexts, code), len(self.contexts) - 1)
        return np.where(self.contexts[place] == code, before, ANYTHING)

    def chances(
        self, before: IntArray, last: IntArray, states: IntArray, start: FloatArray
    ) -> FloatArray:
        """Return the chance of each symbol in some contexts, shape (c, 257).

        `before` and `last` and `states`, shape (c,): as of `AlphabetModel.relevant`. `start`, shape
        (c, 257): chances in these contexts before anything was learned.
        """
        first, second, third = _TRUST
        single = (self.single + first * start) / (self.single.sum() + first)
        seen = self.pairs[last]
        chances = (seen + second * single) / (seen.sum(axis=1, keepdims=True) + second)
        learned = np.flatnonzero(self.matters(before, last) != ANYTHING)
        code = before[learned] * _CONTEXT + last[learned]
        seen = self.triples[np.searchsorted(self.contexts, code)]
        chances[learned] = (seen + third * chances[learned]) / (
            seen.sum(axis=1, keepdims=True) + third
        )
        chances = (1 - _UNIFORM) * chances + _UNIFORM * start
        return utf_8(chances, last, states)


def utf_8(chances: FloatArray, last: IntArray, states: IntArray) -> FloatArray:
    """Return the chances of what UTF-8 allows, shape (c, 257); strings may end anywhere."""
    chances[:, END] = np.maximum(chances[:, END], LEAST_END)
    chances *= _FOLLOWS[np.where(states % STATES > 0, _AFTER[last], 0)]
    return np.asarray(chances / np.maximum(chances.sum(axis=1, keepdims=True), _TINY))


def contexts_at(symbols: SymbolArray, place: int) -> tuple[IntArray, IntArray]:
    """Return the last symbol but one, and the last one, before a place of sequences."""
    outside = np.full(len(symbols), BEFORE, dtype=np.int64)
    last = symbols[:, place - 1].astype(np.int64) if place > 0 else outside
    before = symbols[:, place - 2].astype(np.int64) if place > 1 else outside
    return before, last


def state_after(states: IntArray, symbols: IntArray) -> IntArray:
    """Return the state of the last character after one more symbol, shape (n,).

    It is the character's first byte, 0 if that is ASCII, times `STATES`, and how many bytes it
    still needs.
    """
    first_of_many = np.where((symbols >= _FIRST_LEAD) & (symbols < END), symbols, 0)
    return np.where(states % STATES > 0, states - 1, first_of_many * STATES + _NEEDS[symbols])


def _follows() -> tuple[FloatArray, IntArray]:
    """Return which symbols may follow, and after which.

    Some first bytes leave less room for the second: no character is written longer than it must be,
    none is a surrogate, none is beyond U+10FFFF (RFC 3629).

    Returns an array of shape (6, 257): of a whole character, of an unfinished one, and of those
    that begin with four special bytes. Returns an array of shape (258,): which row holds after a
    byte of an unfinished character.
    """
    seconds = {0xE0: (0xA0, 0xC0), 0xED: (0x80, 0xA0), 0xF0: (0x90, 0xC0), 0xF4: (0x80, 0x90)}
    follows = np.zeros((2 + len(seconds), N_SYMBOLS))
    follows[0, :0x80] = follows[0, 0xC2:0xF5] = follows[0, END] = 1
    follows[1, 0x80:0xC0] = 1
    after = np.ones(_CONTEXT, dtype=np.int64)
    for row, (first, (low, high)) in enumerate(seconds.items(), start=2):
        follows[row, low:high] = 1
        after[first] = row
    return follows, after


_START, _CLASSES = _followers()
_NEEDS = np.zeros(N_SYMBOLS, dtype=np.int64)  # bytes that follow each first one
_NEEDS[0xC2:0xE0], _NEEDS[0xE0:0xF0], _NEEDS[0xF0:0xF5] = 1, 2, 3
_FOLLOWS, _AFTER = _follows()
