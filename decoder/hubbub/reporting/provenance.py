"""Where a result comes from: versions, parameters, settings and digests of every input.

Two results with equal provenance are equal. It therefore holds nothing of the run itself: no time
of day, no machine, no folder (files are named by their last part).
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import version

from hubbub.inference.counts import CohortCounts
from hubbub.storage.files.locations import resolve, storage_errors

SEED = "none: decoding is deterministic"
_PACKAGES = ("hubbub", "numpy", "scipy")


@dataclass(frozen=True, slots=True)
class Source:
    """One input."""

    role: str  # such as "candidates"
    name: str  # of the file, without its folder
    sha256: str  # hexadecimal


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """All that determines a result."""

    # Of the packages that compute, and Python's.
    versions: Mapping[str, str] = field(default_factory=_versions)
    metric: str  # its name, or the name of the file of parameters
    metric_version: int | None  # none for counts
    parameters: Mapping[str, float]  # k, h, m, f, p and q
    parameters_sha256: str  # digest of `canonical(parameters)`
    settings: Mapping[str, str]  # level, correction, method and what else was chosen
    days: str  # the UTC days that were decoded
    sources: tuple[Source, ...]
    seed: str = SEED

    def made_by(self, method: str) -> Provenance:
        """Return the provenance of what a method, in words, made."""
        return replace(self, settings={**self.settings, "method": method})

    def as_json(self) -> dict[str, object]:
        """Return all of it as JSON can hold it."""
        return asdict(self)


def canonical(parameters: Mapping[str, float]) -> bytes:
    """Return the one way to write parameters that their digest is taken of."""
    numbers = {name: float(value) for name, value in parameters.items()}
    return json.dumps(numbers, sort_keys=True, separators=(",", ":")).encode()


def digest(data: bytes) -> str:
    """Return the hexadecimal SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def file_source(role: str, path: str) -> Source:
    """Return a file as a source."""
    location = resolve(path)
    with storage_errors(location), location.open() as file:
        return Source(role, location.name, hashlib.file_digest(file, "sha256").hexdigest())


def files_source(role: str, name: str, paths: Iterable[str]) -> Source:
    """Return several files as a source: the digest of what `sha256sum` says of them, in order."""
    each = (file_source(role, path) for path in paths)
    lines = (f"{source.sha256}  {source.name}\n" for source in each)
    return Source(role, name, digest("".join(lines).encode()))


def strings_source(role: str, strings: Iterable[str], name: str = "a pipe") -> Source:
    """Return strings that are no file as a source: one per line, each once, in UTF-8."""
    hashing = hashlib.sha256()
    for string in strings:
        hashing.update(string.encode("utf-8") + b"\n")
    return Source(role, name, hashing.hexdigest())


def counts_source(role: str, counts: CohortCounts) -> Source:
    """Return counts as a source: N_c and the bit counts of each cohort, as little-endian int64.

    Segments of a store are shuffled and merged as it ages, so their bytes are no one's digest; the
    counts that are made of them stay.
    """
    hashing = hashlib.sha256(counts.reports.astype("<i8").tobytes())
    hashing.update(counts.bits.astype("<i8").tobytes())
    return Source(role, "reports of each cohort, then of each bit", hashing.hexdigest())
