"""Populations of strings that look unlike each other: whom a search without a list must serve.

Words, names and tokens in many scripts, and of many shapes, none longer than 48 bytes. They come
from Python itself (its documentation, modules, time zones, character sets), or are built from
syllables by a seed; so they are the same wherever Python is, but for what a release of it adds.
Shares are as 1 / rank unless something real says how common each is. Invariant: nothing is tuned
on `HELD_OUT`; these show what a search is worth for those who weren't thought of.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import random
import re
import sys
import typing
import unicodedata
import zoneinfo
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import ismodule
from pathlib import Path
from pydoc_data.topics import topics
from typing import TypeVar

import numpy as np

from hubbub.simulations import LISTS, Population, family_shares

_ItemT = TypeVar("_ItemT")

_LONGEST = 48  # bytes of an identifier; longer ones are few
_WORDS = 3_000
"""As many of all that are made up."""

_GERMAN_WORDS = (
    "die der und in zu den das nicht von sie ist des sich mit dem dass er es ein ich auf so eine "
    "auch als an nach wie im für man aber aus durch wenn nur war noch werden bei hat wir was wird "
    "sein einen welche sind oder zur um haben einer mir über ihm diese einem ihr uns da zum kann "
    "doch vor dieser mich ihn du hatte seine mehr am denn nun unter sehr selbst schon hier bis "
    "habe ihre dann ihnen seiner alle wieder meine Zeit gegen vom ganz einzelnen wo muss ohne "
    "eines können können würde größer schließlich heißt möglich später früher natürlich fünf"
)
_GERMAN_STEMS = (
    "Haus Straßen Tür Garten Schul Arbeits Kinder Bücher Wasser Stadt Land Kraft Fahr Zug Flug "
    "Brief Spiel Sonnen Sommer Winter Früh Abend Tages Jahres Grund Rechts Staats Volks Kunst "
    "Wohn Küchen Apfel Brot Käse Milch Öl Übungs Äußerungs Gesund Kranken"
)
_GERMAN_ENDS = (
    "haus platz zeit ordnung arbeit weg tür buch stück mann frau kind plan zahl karte kosten "
    "schaft führer prüfung änderung"
)

# Letters in the order of how common they are.
_CYRILLIC = ("оеаиуыяюёэ", "нтсрвлкмдпгзбчйхжшцщф", "нтврлмькйс")
_GREEK = ("αοιετηυωάίόέήύώ", "τνσρκπμλγδθχφβξζψ", "νσρ")
_THAI = ("าะิีุูเแโไ", "กนรมลวสคทดบปพอยหจชตง", "นงกมดบ")
_DEVANAGARI = ("ािीुूेैोौं", "करनसतमपलहवदयजबगचटभधथखशणफडछघठझ", "नरलतकस")
_HANGUL = (
    range(19),  # initial, medial and final letters are numbered (Unicode, section 3.12)
    range(21),
    (0, 0, 0, 0, 4, 8, 16, 21, 1, 17),
)

_FOUR = {
    "latin": ("red", "green", "blue", "yellow"),
    "cyrillic": ("красный", "зелёный", "синий", "жёлтый"),
    "greek": ("κόκκινο", "πράσινο", "μπλε", "κίτρινο"),
    "arabic": ("أحمر", "أخضر", "أزرق", "أصفر"),
    "hebrew": ("אדום", "ירוק", "כחול", "צהוב"),
    "devanagari": ("लाल", "हरा", "नीला", "पीला"),
    "thai": ("แดง", "เขียว", "ฟ้า", "เหลือง"),
    "georgian": ("წითელი", "მწვანე", "ლურჯი", "ყვითელი"),
    "kana": ("あか", "みどり", "あお", "きいろ"),
    "han": ("红色", "绿色", "蓝色", "黄色"),
    "hangul": ("빨강", "초록", "파랑", "노랑"),
    "emoji": ("🔴", "🟢", "🔵", "🟡"),
}

_AREAS = "ui net app sync cache user debug media print audio video input store search"
_SETTINGS = (
    "theme proxy font color retry limit index timeout volume width height path mode level depth "
    "quota batch token locale margin border cursor buffer thread socket header footer layer"
)

# Modules that every machine's Python has.
_DOCUMENTED = (
    "argparse ast asyncio calendar codecs collections configparser csv ctypes datetime decimal dis "
    "email.message errno ftplib functools gettext html.parser http http.client http.cookies "
    "inspect ipaddress itertools json logging mimetypes multiprocessing os pathlib pickle platform "
    "re selectors shutil signal smtplib socket sqlite3 ssl stat statistics string struct "
    "subprocess symtable tarfile tempfile threading tokenize traceback types typing unittest "
    "unittest.mock urllib.parse urllib.request uuid warnings weakref xml.dom.minidom zipfile zlib"
)


_PACKAGES = "numpy scipy sklearn aiohttp"
_NAMING_PACKAGES = (
    "numpy scipy.linalg scipy.optimize scipy.signal scipy.sparse scipy.special scipy.stats "
    "sklearn.cluster sklearn.ensemble sklearn.linear_model sklearn.metrics sklearn.preprocessing "
    "aiohttp aiohttp.web"
)


def english() -> Population:
    """Return the words of Python's manual, as common as they are there."""
    words = Counter(re.findall(r"[A-Za-z][a-z]+", " ".join(topics.values())))
    counts = np.array(list(words.values()), dtype=np.float64)
    return Population(tuple(words), counts / counts.sum())


def german() -> Population:
    compounds = [stem + end for stem in _GERMAN_STEMS.split() for end in _GERMAN_ENDS.split()]
    return _zipf([*dict.fromkeys(_GERMAN_WORDS.split()), *_shuffled(compounds)])


def modules() -> Population:
    """Return names of Python's modules and packages: xml.etree.ElementTree."""
    names = {name for name in sys.stdlib_module_names if not name.startswith("_")}
    for package in ("asyncio", "concurrent", "ctypes", "curses", "email", "encodings", "http",
                    "importlib", "json", "logging", "multiprocessing", "unittest", "urllib",
                    "wsgiref", "xml", "xml.dom", "xml.etree", "xml.sax"):  # fmt: skip
        path = importlib.import_module(package).__path__
        names |= {f"{package}.{module.name}" for module in pkgutil.iter_modules(path)}
    return _zipf(_shuffled(names))


def places() -> Population:
    """Return the places that time zones are named after: Buenos Aires."""
    zones = (zone for zone in zoneinfo.available_timezones() if "/" in zone and "Etc" not in zone)
    return _zipf(_shuffled({zone.rpartition("/")[2].replace("_", " ") for zone in zones}))


def identifiers() -> Population:
    """Return 3,000 public names of Python's library: CERT_NONE, getaddrinfo, HTTPServer."""
    for name in typing.__all__:
        getattr(typing, name)  # from Python 3.13 on, some are made when they are first asked for
    return _zipf(_shuffled(_public_names(_DOCUMENTED))[:_WORDS])


def hex_tokens() -> Population:
    """Return tokens of eight hexadecimal digits."""
    return _zipf([_digest(str(number)).hex()[:8] for number in range(_WORDS)])


def cyrillic() -> Population:
    return _words(lambda draw: "".join(_syllable(_CYRILLIC, draw) for _ in range(_few(draw, 4))))


def greek() -> Population:
    return _words(lambda draw: "".join(_syllable(_GREEK, draw) for _ in range(_few(draw, 4))))


def han() -> Population:
    """Return made-up words of one to three of the 3,755 most used Chinese characters."""
    rows = (bytes([row, cell]) for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF))
    characters = _shuffled(each.decode("gb2312", "ignore") for each in rows)
    characters = [each for each in characters if each]
    return _words(lambda draw: "".join(_pick(characters, draw) for _ in range(_few(draw, 3))))


def emoji() -> Population:
    """Return one to three pictures."""
    numbers = (*range(0x1F300, 0x1F650), *range(0x1F680, 0x1F700), *range(0x1F900, 0x1FA00))
    pictures = _shuffled(chr(each) for each in numbers if unicodedata.category(chr(each)) == "So")
    return _words(lambda draw: "".join(_pick(pictures, draw) for _ in range(_few(draw, 3))))


def hangul() -> Population:
    """Return made-up words of two or three Korean syllables."""

    def syllable(draw: random.Random) -> str:
        initial, medial, final = (_pick(letters, draw) for letters in _HANGUL)
        return chr(0xAC00 + 28 * (21 * initial + medial) + final)

    return _words(lambda draw: "".join(syllable(draw) for _ in range(1 + _few(draw, 2))))


def versions() -> Population:
    """Return numbers of versions: 3.11.4, 115.0.5790.171."""

    def version(draw: random.Random) -> str:
        most = (150, 30, 6_000, 200) if draw.random() < 0.4 else (9, 30, 20)
        return ".".join(str(int(each * draw.random() ** 2)) for each in most)

    return _words(version)


def thai() -> Population:
    """Return made-up words of one to three Thai syllables, of three bytes a letter; held out."""
    return _words(lambda draw: "".join(_syllable(_THAI, draw) for _ in range(_few(draw, 3))))


def stamps() -> Population:
    """Return days and minutes: 2025-11-03T14:05."""

    def stamp(draw: random.Random) -> str:
        day, minute = 1 + _pick(range(28), draw), _pick(range(60), draw)
        year, month, hour = _few(draw, 5), _few(draw, 12), _few(draw, 23)
        return f"{2020 + year}-{month:02}-{day:02}T{hour:02}:{minute:02}"

    return _words(stamp)


def devanagari() -> Population:
    """Return made-up words of one to three syllables, of three bytes a letter; held out."""
    return _words(lambda draw: "".join(_syllable(_DEVANAGARI, draw) for _ in range(_few(draw, 3))))


def sockets() -> Population:
    """Return addresses of four numbers, most with a port: 10.0.3.17:8080; held out."""
    nets = ("10.0", "192.168", "172.16", "127.0", "169.254", "100.64", "8.8", "203.0")
    ports = ("80", "443", "8080", "22", "53", "5432", "6379", "3306", "8443", "9090", "25")

    def socket(draw: random.Random) -> str:
        port = f":{_pick(ports, draw)}" if draw.random() < 0.7 else ""
        host, last = _pick(range(256), draw), _pick(range(256), draw)
        return f"{_pick(nets, draw)}.{host}.{last}{port}"

    return _words(socket)


def settings() -> Population:
    """Return keys of two or three words: net.proxy.maxRetries; held out."""
    first, words = _AREAS.split(), _SETTINGS.split()

    def key(draw: random.Random) -> str:
        parts = [_pick(first, draw), _pick(words, draw)]
        if draw.random() < 0.7:
            parts[-1:] = [_pick(words, draw), _pick(words, draw)]
        if draw.random() < 0.5:
            parts[-1] += _pick(words, draw).capitalize()
        return ".".join(parts)

    return _words(key)


def mixed() -> Population:
    """Return words of five kinds in turn, which nothing is written in together; held out."""
    kinds = (modules, cyrillic, han, hex_tokens, versions)
    in_turn = zip(*(kind().values[:300] for kind in kinds), strict=False)
    return _zipf([value for together in in_turn for value in together])


TUNED: dict[str, Callable[[], Population]] = {
    "english": english,
    "german": german,
    "modules": modules,
    "places": places,
    "han": han,
    "hex": hex_tokens,
    "emoji": emoji,
    "cyrillic": cyrillic,
    "greek": greek,
    "names": LISTS["census"],
    "identifiers": identifiers,
    "hangul": hangul,
    "versions": versions,
    "stamps": stamps,
    "domains": LISTS["domains"],
}
"""Populations that a search may be tuned on."""
HELD_OUT: dict[str, Callable[[], Population]] = {
    "thai": thai,
    "devanagari": devanagari,
    "sockets": sockets,
    "settings": settings,
    "mixed": mixed,
}
"""Populations that none is tuned on."""


def four(script: str) -> Population:
    """Return four colours, which 40, 30, 20 and 10% name, in a script of `SCRIPTS`."""
    return Population(_FOUR[script], np.array([0.4, 0.3, 0.2, 0.1]))


SCRIPTS = tuple(_FOUR)


def other_identifiers() -> list[str]:
    """Return public names of packages that hubbub needs, but for those among `identifiers`."""
    return sorted(_public_names(_NAMING_PACKAGES) - set(identifiers().values))


def other_modules() -> list[str]:
    """Return names of modules of packages that hubbub needs: scipy.sparse.linalg."""
    packages = map(importlib.import_module, _PACKAGES.split())
    return sorted(name for each in packages for name in _modules_of(each.__name__, each.__path__))


CORPORA: dict[str, Callable[[], Sequence[str]]] = {
    "identifiers": other_identifiers,
    "modules": other_modules,
}
"""Public strings that are like those of a population, none of which they give away."""


def _public_names(modules: str) -> set[str]:
    """Return the names in modules and in their classes, but for modules' and very long ones."""
    names = set[str]()
    for module in map(importlib.import_module, modules.split()):
        # A package's modules are among its names once something has imported them.
        own = {name: value for name, value in vars(module).items() if not ismodule(value)}
        names |= own.keys()
        names.update(*(dir(each) for each in own.values() if isinstance(each, type)))
    return {name for name in names if not name.startswith("_") and len(name) <= _LONGEST}


def _modules_of(package: str, folders: Sequence[str]) -> Iterator[str]:
    yield package
    for module in pkgutil.iter_modules(folders):
        if not module.name.startswith(("_", "test", "conftest")):
            below = [str(Path(folder, module.name)) for folder in folders]
            yield from _modules_of(f"{package}.{module.name}", below)


def _zipf(values: Sequence[str]) -> Population:
    return Population(tuple(values), family_shares("zipf", len(values)))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _shuffled(values: Iterable[str]) -> list[str]:
    return sorted(values, key=_digest)


def _words(word: Callable[[random.Random], str]) -> Population:
    draw = random.Random(1)  # noqa: S311 - nothing secret
    words = dict[str, None]()
    while len(words) < _WORDS:
        words[unicodedata.normalize("NFC", word(draw))] = None
    return _zipf(list(words))


def _syllable(letters: tuple[str, str, str], draw: random.Random) -> str:
    vowels, consonants, ends = letters
    last = _pick(ends, draw) if draw.random() < 0.3 else ""
    return _pick(consonants, draw) + _pick(vowels, draw) + last


def _pick(items: Sequence[_ItemT], draw: random.Random) -> _ItemT:
    return items[min(int((len(items) + 1) ** draw.random()) - 1, len(items) - 1)]


def _few(draw: random.Random, most: int) -> int:
    return 1 + sum(draw.random() < 0.5 for _ in range(most - 1))
