"""A central release's JSON file, as `hubbub-release` writes it -> counts that can be blended.

Invariant: counts that were shown because they are large are refused: they are too high on average,
by an amount that nobody can take out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.blending.noise import CountNoise
from hubbub.inference.blending.release import CentralRelease
from hubbub.inference.errors import InputError
from hubbub.protocol.metric_types.base import normal_form

_QUERIES = ("histogram", "candidates")
_SELECTING, _OTHERS = "thresholded", "in the others"
"""How a mechanism's name begins that shows large counts alone; and what it says if others count."""
_LEAST_TOTAL = 10.0  # standard deviations of its noise
_LARGEST = 2.0**62  # what sums of doubles and 64-bit integers bear; no population is larger


def read_release(path: Path) -> CentralRelease:
    """Read a release of counts by key.

    Raises
    ------
    InputError
        If it can't be read, or holds something that can't be blended; says where and why.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: can't be read: {error}") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: must be the JSON that hubbub-release writes: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{path}: must be a JSON object with `summary` and `rows`")
    summary, rows = document.get("summary"), document.get("rows")
    if not isinstance(summary, dict):
        raise InputError(f"{path}: summary: must be an object; hubbub-release writes it")
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{path}: rows: must be a list of at least one row")
    return _release(_Fields(path, summary), rows)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The summary's fields, each checked as it is taken."""

    path: Path
    summary: Mapping[str, Any]

    def refuse(self, field: str, expected: str) -> NoReturn:
        value = json.dumps(self.summary.get(field))
        raise InputError(f"{self.path}: summary.{field} = {value}: must be {expected}")

    def number(self, field: str, least: float, expected: str, *, above: bool = False) -> float:
        value = self.summary.get(field)
        found = _number(value)
        if found is None or found < least or (above and found == least):
            self.refuse(field, expected)
        return found


def _release(fields: _Fields, rows: list[Any]) -> CentralRelease:
    summary = fields.summary
    if summary.get("query") not in _QUERIES:
        fields.refuse("query", "a release of counts by key: " + " or ".join(map(repr, _QUERIES)))
    mechanism = summary.get("mechanism")
    if not isinstance(mechanism, str):
        fields.refuse("mechanism", "the name of the mechanism")
    if mechanism.startswith(_SELECTING) and _OTHERS not in mechanism:
        fields.refuse(
            "mechanism",
            "a histogram of keys that were chosen without these users. A thresholded histogram "
            "shows only what came out high, so its counts are too high: find the names by it, and "
            "count them among other users, as `hubbub-release candidates --output` does",
        )
    laplace = "Laplace" in mechanism
    if not laplace and "Gaussian" not in mechanism:
        fields.refuse("mechanism", "one that adds discrete Laplace or discrete Gaussian noise")
    if summary.get("rows_per_user") != 1:
        fields.refuse(
            "rows_per_user",
            "1, so that counts are numbers of users; release again with --rows-per-user 1",
        )
    if summary.get("total") is None:
        fields.refuse(
            "total",
            "the noisy number of users who were counted: release the histogram with --total",
        )
    total = fields.number("total", 1.0, "a number of at least 1")
    variance = fields.number("total_variance", 0.0, "a number of at least 0")
    if total < _LEAST_TOTAL * math.sqrt(variance):
        fields.refuse(
            "total",
            f"at least {_LEAST_TOTAL:g} standard deviations of its noise, "
            f"{_LEAST_TOTAL * math.sqrt(variance):,.0f}; of so few users shares can't be told",
        )
    noise = fields.number("noise_variance", 0.0, "a number above 0", above=True)
    keys, counts = _counts(fields.path, rows)
    return CentralRelease(
        keys=keys,
        counts=counts,
        noise=CountNoise(noise, laplace),
        total=total,
        total_variance=variance,
        epsilon=fields.number("epsilon", 0.0, "a number above 0", above=True),
        delta=fields.number("delta", 0.0, "a number of at least 0"),
        mechanism=mechanism,
        name=fields.path.name,
    )


def _counts(path: Path, rows: list[Any]) -> tuple[tuple[str, ...], FloatArray]:
    """Return the rows' keys in their normal form, and their values."""
    seen: dict[str, int] = {}
    counts = np.empty(len(rows))
    for place, row in enumerate(rows):
        where = f"{path}: rows[{place}]"
        if not isinstance(row, dict):
            raise InputError(f"{where}: must be an object with `key` and `value`")
        key, value = row.get("key"), _number(row.get("value"))
        if not isinstance(key, str):
            raise InputError(f"{where}.key = {json.dumps(key)}: must be a string")
        if value is None:
            raise InputError(f"{where}.value = {json.dumps(row.get('value'))}: must be a number")
        text = normal_form(key)
        if text in seen:
            raise InputError(
                f"{where}.key = {json.dumps(key, ensure_ascii=False)}: stands in rows[{seen[text]}]"
                " as well (in Unicode NFC); must occur once"
            )
        seen[text], counts[place] = place, value
    return tuple(seen), counts


def _number(value: object) -> float | None:
    """Return a finite number of the file, or None if it isn't one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < _LARGEST else None
