"""Vectors of asymmetric noise, prices of n reports, and reports that are drawn as a whole."""

from __future__ import annotations

import math
from typing import Any

from evaluation.reference import protocol, responses
from evaluation.reference.protocol import Domain, Noise, Stream

Rows = list[dict[str, Any]]

ASYMMETRIC = ((0.125, 0.25), (0.0122, 0.5), (5e-324, 0.75), (0.0, 0.3141), (0.5, 0.0), (0.25, 0.25))
PRICED: tuple[dict[str, float], ...] = (
    {"f": 0.5, "p": 0.25, "q": 0.75},
    {"f": 0.5, "p": 0.75, "q": 0.25},
    {"f": 0.1, "p": 0.0, "q": 0.5},
    {"f0": 0.0122, "f1": 0.5, "p": 0.265, "q": 0.74},
    {"f0": 0.3, "f1": 0.01, "p": 0.5, "q": 0.875},
    {"f0": 0.2, "f1": 0.25, "p": 0.25, "q": 1.0},
)
SUBSET = {"mode": "once", "period_days": 30, "response": "subset"}
NUMBER = {"mode": "once", "period_days": 30, "type": "number"}
CRASH = {"name": "crash", "type": "enum", "categories": ["none", "oom"], "other": True}
SLOW = {"name": "slow", "type": "boolean"}
WHOLE: tuple[dict[str, Any], ...] = (
    {**SUBSET, "type": "enum", "categories": ["red", "green", "blue"], "size": 1, "q": 0.75},
    {**SUBSET, "type": "enum", "categories": [f"c{i}" for i in range(17)], "size": 5, "q": 0.6},
    {**SUBSET, "type": "enum", "categories": ["a", "b"], "other": True, "size": 2, "q": 0.9},
    {**SUBSET, "type": "ordinal", "edges": [0, 1.5, 10], "size": 3, "q": 0.8765},
    {**SUBSET, "type": "joint", "fields": [CRASH, SLOW], "size": 2, "q": 0.5},
    {**NUMBER, "low": 0, "high": 60, "cells": 2, "window": 1, "q": 0.731},
    {**NUMBER, "low": -1, "high": 1, "cells": 8, "window": 4, "q": 0.7},
    {**NUMBER, "low": 0.5, "high": 1e6, "cells": 32, "window": 5, "q": 0.9, "variance": True},
)
COINS = (bytes(8), b"\xff" * 8, bytes(7) + b"\x80", protocol.shake(b"coins", 8))
ABOVE = (0.25, 0.5, 1 / 3, 0.999)
SECRETS = tuple(protocol.shake(f"secret {i}".encode(), 32) for i in range(2))
DOMAIN = Domain("com.example.browser", "homepage", 1)


def asymmetric() -> Rows:
    """Give permanent responses of f0 and f1, and both epsilons (of a value that sets one bit)."""
    rows: Rows = []
    for secret in SECRETS:
        for k in (8, 128):
            for f0, f1 in ASYMMETRIC:
                in_cohort = protocol.cohort(secret, DOMAIN, 64)
                positions = protocol.bloom_positions("example.com", in_cohort, k, 8)
                bits = protocol.bits_to_bytes(positions, k)
                permanent = protocol.permanent(secret, DOMAIN, in_cohort, bits, f0, f1)
                rows.append(
                    {
                        "secret": secret.hex(),
                        **DOMAIN._asdict(),
                        "k": k,
                        "h": 8,
                        "m": 64,
                        "f0": f0,
                        "f1": f1,
                        "value": "example.com",
                        "cohort": in_cohort,
                        "bits": bits.hex(),
                        "permanent": permanent.hex(),
                    }
                )
    return rows


def prices() -> Rows:
    """Give what so many reports of one permanent response reveal, and all of them."""
    rows: Rows = []
    for kind, h in (("boolean", 1), ("enum", 1), ("string", 2)):
        for noise in PRICED:
            permanent, _ = protocol.epsilons(kind, h, **noise)
            chances = protocol.noise({"type": kind, **noise})
            rows += [
                {
                    "type": kind,
                    "h": h,
                    **noise,
                    "reports": n,
                    "epsilon": nine(protocol.epsilon_after(kind, h, Noise(*chances), n)),
                    "epsilon_permanent": nine(permanent),
                }
                for n in (1, 2, 3, 5, 10, 365)
            ]
    return rows


def whole_reports() -> Rows:
    """Give reports that are drawn from a stream, and what the metric's parameters are."""
    rows: Rows = []
    for entry in WHOLE:
        d, w = responses.shape(entry)
        last = d - w if entry["type"] == "number" else d - 1
        k = -(-d // 8) * 8
        chances = protocol.noise(entry)
        for own in sorted({0, 1, last // 2, last}):
            for i in range(6):
                message = f"whole {own} {i}".encode()
                cells = responses.draw(entry, own, Stream(message))
                rows.append(
                    {
                        "entry": entry,
                        "k": k,
                        "m": 2 if entry.get("variance") else 1,
                        "p": nine(chances.p),
                        "q": nine(chances.q),
                        "epsilon": nine(responses.epsilon(entry)),
                        "own": own,
                        "stream_message": message.hex(),
                        "bits": protocol.bits_to_bytes(cells, k).hex(),
                    }
                )
    return rows


def numbers() -> Rows:
    """Give positions of numbers, on the grid and between its points, with given coins."""
    rows: Rows = []
    for entry in WHOLE:
        if entry["type"] != "number":
            continue
        (d, w), low, high = responses.shape(entry), entry["low"], entry["high"]
        step = (high - low) / (d - w)
        values = [low - 1, low, high, 1e300, *(low + part * step for part in ABOVE)]
        values += [low + (high - low) * part for part in ABOVE]
        for value in values:
            for cohort in range(2 if entry.get("variance") else 1):
                for coins in COINS:
                    position = responses.position(entry, value, cohort, FromBytes(coins))
                    rows.append(
                        {
                            "entry": entry,
                            "value": value,
                            "cohort": cohort,
                            "coins": coins.hex(),
                            "position": position,
                        }
                    )
    return rows


class FromBytes(Stream):
    """A stream of given bytes."""

    def __init__(self, data: bytes) -> None:
        self._output = data
        self._read = 0


def nine(number: float) -> float | None:
    """Return nine significant digits; None of infinity."""
    return None if math.isinf(number) else float(f"{number:.9g}")
