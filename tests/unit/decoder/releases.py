"""Makers of central releases for the tests of this folder."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.inference.blending.noise import CountNoise
from hubbub.inference.blending.release import CentralRelease

RATIO = math.exp(-1.0)
"""a of discrete Laplace noise at epsilon 1."""
NOISE = CountNoise(2 * RATIO / (1 - RATIO) ** 2, laplace=True)


def release_document(counts: Mapping[str, float], **summary: Any) -> dict[str, Any]:
    """Return what hubbub-release writes of a histogram; `summary` overrides its fields."""
    total = sum(counts.values())
    rows = [{"key": key, "value": value, "radius": 3} for key, value in counts.items()]
    usual = {
        "query": "histogram",
        "column": "homepage",
        "mechanism": "discrete Laplace",
        "rows_per_user": 1,
        "epsilon": 1.0,
        "delta": 1e-6,
        "noise_variance": NOISE.variance,
        "total": total,
        "total_variance": NOISE.variance * len(counts),
    }
    return {"summary": usual | summary, "rows": rows}


def write_release(path: Path, counts: Mapping[str, float], **summary: Any) -> Path:
    path.write_text(json.dumps(release_document(counts, **summary)), encoding="utf-8")
    return path


def make_release(
    counts: Mapping[str, float], total: float, noise: CountNoise = NOISE
) -> CentralRelease:
    return CentralRelease(
        keys=tuple(counts),
        counts=np.array(list(counts.values()), dtype=np.float64),
        noise=noise,
        total=total,
        total_variance=noise.variance,
        epsilon=1.0,
        delta=0.0,
        mechanism="discrete Laplace",
        name="release.json",
    )


def laplace_noise(rng: np.random.Generator, size: int, ratio: float = RATIO) -> FloatArray:
    """Draw discrete Laplace noise: the difference of two geometric variables."""
    drawn = rng.geometric(1 - ratio, (2, size))
    return np.asarray(drawn[0] - drawn[1], dtype=np.float64)
