"""A decoding as arrays, whether it was made in this process or by the decoder's command."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hubbub.decoder.arrays import BoolArray, FloatArray
from hubbub.decoder.decoding import Decoding

_COLUMNS = {
    "share": "proportion",
    "std_error": "prop_std_error",
    "low": "prop_low",
    "high": "prop_high",
    "p_value": "p_value",
}


@dataclass(frozen=True, slots=True)
class Estimates:
    """The decoder's rows in the candidates' order, arrays of shape (n,), and its summary.

    Attributes
    ----------
    share, std_error, low, high, p_value : float64 array
        As in `Decoding`.
    detected : bool array
    summary : dict
    """

    share: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    detected: BoolArray
    summary: dict[str, float]


def estimates_of(decoding: Decoding) -> Estimates:
    """Take a decoding's arrays."""
    columns = {name: getattr(decoding, name) for name in (*_COLUMNS, "detected")}
    return Estimates(**columns, summary=asdict(decoding.summary))


def read_estimates(path: Path) -> Estimates:
    """Read what `hubbub-decoder decode --output` wrote as JSON."""
    document = json.loads(path.read_text(encoding="utf-8"))
    columns = {
        name: np.array([row[column] for row in document["rows"]], dtype=np.float64)
        for name, column in _COLUMNS.items()
    }
    detected = np.array([row["detected"] for row in document["rows"]], dtype=np.bool_)
    return Estimates(**columns, detected=detected, summary=document["summary"])
