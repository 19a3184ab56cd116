"""Millions of clients at once, honest and forged, drawn on packed words.

Clients that report once have their cohort and permanent noise drawn instead of derived from a
secret, which has the same distribution; given the true bits, each reported bit is an independent
coin with p* or q*, so one exact comparison draws what the client draws in two. Clients that report
day after day keep their permanent response. Forged reports are what an attacker would send who
controls a share of all reports (docs/understand/attacks.md).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
from scipy import stats

from hubbub.inference import ByteArray, FloatArray, IntArray
from hubbub.protocol import MetricType, OpenStringType, RapporParams, Value, canonical_bytes
from hubbub.simulations.simulated_clients.bernoulli import (
    Words,
    bernoulli_bytes,
    keyed_bernoulli_words,
    mix,
    packed_filters,
    true_bits,
)

_WORD_STEP = np.uint64(0x9E3779B97F4A7C15)
"""SplitMix64's step, which sets the words of one response apart."""


class SimulatedClients:
    """Clients of one metric, each of which reports once; SFC64 is the fastest generator."""

    def __init__(
        self,
        values: Sequence[Value],
        params: RapporParams,
        rng: np.random.Generator,
        metric_type: MetricType | None = None,
    ) -> None:
        self._params = params
        self._rng = rng
        self._bits = true_bits(values, params, metric_type)
        self._low, self._high = reported_chances(params)

    def with_rng(self, rng: np.random.Generator) -> SimulatedClients:
        """Return clients of the same values with other randomness, sharing the hashed values."""
        other = copy.copy(self)
        other._rng = rng
        return other

    def report(self, held: IntArray) -> tuple[IntArray, ByteArray]:
        """Draw one report for each new client, given its value's index, shape (n,).

        Returns `cohorts`, shape (n,), and `bits`, shape (n, k / 8).
        """
        narrow = self._rng.integers(self._params.m, size=len(held), dtype=np.uint16)
        cohorts = narrow.astype(np.int64)
        true = self._bits.take(held, cohorts)
        return cohorts, bernoulli_bytes(self._rng, true, self._low, self._high)


class LongitudinalClients:
    """Numbered clients of one metric, each of which may report often; secrets follow from the seed.

    Cohorts are uniform, as real clients' are, unless their chances are given.
    """

    def __init__(
        self,
        values: Sequence[Value],
        params: RapporParams,
        seed: np.random.SeedSequence,
        cohort_shares: FloatArray | None = None,
        metric_type: MetricType | None = None,
    ) -> None:
        self._params = params
        self._bits = true_bits(values, params, metric_type)
        self._cohort_secret, self._response_secret = seed.generate_state(2, np.uint64)
        self._cohort_edges = None if cohort_shares is None else np.cumsum(cohort_shares)[:-1]

    def cohorts(self, clients: IntArray) -> IntArray:
        """Return the cohort that each client has for life; int64, shape (n,)."""
        hashes = mix(mix(clients.astype(np.uint64)) + self._cohort_secret)
        uniform = (hashes >> np.uint64(11)) * 2.0**-53
        if self._cohort_edges is None:
            return (uniform * self._params.m).astype(np.int64)
        return np.searchsorted(self._cohort_edges, uniform, side="right")

    def permanent(self, clients: IntArray, held: IntArray) -> ByteArray:
        """Return each client's permanent response to its value, (n, k / 8): always the same."""
        bloom = self._bits.take(held, self.cohorts(clients))
        padded = np.zeros((len(bloom), -(-bloom.shape[1] // 8) * 8), dtype=np.uint8)
        padded[:, : bloom.shape[1]] = bloom
        words = padded.view(np.uint64)
        keys = self._keys(clients, words)
        flipped = keyed_bernoulli_words(
            keys.ravel(), words.ravel(), self._params.f0, self._params.f1
        )
        response = words ^ flipped.reshape(words.shape)
        return response.view(np.uint8)[:, : bloom.shape[1]]

    def report(self, clients: IntArray, held: IntArray, rng: np.random.Generator) -> ByteArray:
        """Draw one report of each client; uint8, shape (n, k / 8). See `permanent`."""
        permanent = np.ascontiguousarray(self.permanent(clients, held))
        return bernoulli_bytes(rng, permanent, self._params.p, self._params.q)

    def _keys(self, clients: IntArray, bloom: Words) -> Words:
        key = mix(mix(clients.astype(np.uint64)) + self._response_secret)
        for column in bloom.T:
            key = mix(key ^ column)
        places = np.arange(1, bloom.shape[1] + 1, dtype=np.uint64) * _WORD_STEP
        return mix(key[:, None] ^ mix(places))


def reported_chances(params: RapporParams) -> tuple[Fraction, Fraction]:
    """Return p* and q* exactly (Erlingsson et al. 2014, section 3): sums of products of doubles."""
    zero, one = Fraction(params.f0), Fraction(params.f1)
    p, q = Fraction(params.p), Fraction(params.q)
    return zero * q + (1 - zero) * p, (1 - one) * q + one * p


def as_records(cohorts: IntArray, bits: ByteArray) -> bytes:
    """Return reports as the collector stores them: the cohort in two bytes, then the bits."""
    records = np.empty((len(cohorts), 2 + bits.shape[1]), dtype=np.uint8)
    records[:, :2] = cohorts.astype("<u2")[:, None].view(np.uint8)
    records[:, 2:] = bits
    return records.tobytes()


_ALARM = 1e-6
"""Error of either bound: one audit in a million finds a kept promise broken."""
_PAIRS = 200


@dataclass(frozen=True, slots=True)
class Audit:
    """The epsilon observed, and the one promised."""

    epsilon_report: float  # the promise
    # Logarithm of the ratio of the two frequencies; inf if the second value never showed it.
    observed: float
    # Exact lower bound of what is revealed; above epsilon_report with probability 2e-6 at most.
    at_least: float
    reports: int  # of each value

    @property
    def kept(self) -> bool:
        """Whether the promise was kept, as far as this can show."""
        return self.at_least <= self.epsilon_report


def audit_epsilon(params: RapporParams, reports: int, rng: np.random.Generator) -> Audit:
    """Try to distinguish two values by so many single reports each, of cohort 0."""
    alone = params._replace(m=1)
    # Two values whose Bloom filters have as many bits of their own as can be found.
    values = tuple(f"audit {i}" for i in range(_PAIRS))
    packed = packed_filters([canonical_bytes(value) for value in values], alone)
    filters = np.unpackbits(packed, axis=1).astype(np.int64)
    apart: IntArray = np.abs(filters[:1] - filters[1:]).sum(axis=1)
    other = 1 + int(np.argmax(apart))
    clients = SimulatedClients((values[0], values[other]), alone, rng)
    first, second = packed[0], packed[other]
    ones, zeros = first & ~second, second & ~first
    if params.q < params.p:
        ones, zeros = zeros, ones
    shown = []
    for value in range(2):
        _, bits = clients.report(np.full(reports, value, dtype=np.int64))
        shown.append(int(((bits & (ones | zeros)) == ones).all(axis=1).sum()))
    often, seldom = shown
    low = float(stats.beta.ppf(_ALARM, often, reports - often + 1)) if often else 0.0
    high = float(stats.beta.isf(_ALARM, seldom + 1, reports - seldom)) if seldom < reports else 1.0
    return Audit(
        epsilon_report=params.epsilon_report,
        observed=math.log(often / seldom) if often and seldom else math.inf,
        at_least=math.log(low / high) if low else -math.inf,
        reports=reports,
    )


_DEFAULT_TARGETS = 1
"""All kinds but maximal gain have one."""


class AttackError(ValueError):
    """An attack that isn't described as one must be."""


class AttackKind(StrEnum):
    """The reports that forgers send."""

    MAXIMAL_GAIN = "maximal-gain"
    """Noise like an honest client's, but every bit of every target as if it were true."""
    RANDOM = "random"
    """Fair coins."""
    REPLAY = "replay"
    """One honest report of a target, again and again."""
    FALSE_VALUE = "false-value"
    """The reports of an honest client that has the target."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A share of all reports that is forged."""

    kind: AttackKind
    share: float  # of all reports, between 0 and 1
    # Strings that are to seem common; 1 if the kind isn't maximal gain.
    targets: int = _DEFAULT_TARGETS
    string: str | None = None  # which one, if it is named

    @property
    def needs_target(self) -> bool:
        """Whether it is for a string."""
        return self.kind is not AttackKind.RANDOM


def parse_attack(text: str) -> Attack:
    """Read a description such as `maximal-gain:targets=5,share=0.01`; `string=` comes last."""
    kind, _, rest = text.partition(":")
    if kind not in set(AttackKind):
        raise AttackError(f"attack {text!r}: must begin with one of {', '.join(AttackKind)}")
    numbers, named, string = rest.partition("string=")
    pairs = [part.partition("=")[::2] for part in numbers.split(",") if part]
    options = dict(pairs)
    if unknown := set(options) - {"share", "targets"}:
        raise AttackError(f"attack {text!r}: {min(unknown)} isn't share, targets or string")
    if named and ("targets" in options or kind == AttackKind.RANDOM):
        raise AttackError(f"attack {text!r}: string= can't go with targets= or {AttackKind.RANDOM}")
    if len(options) < len(pairs):
        raise AttackError(f"attack {text!r}: each option may stand there once")
    if "targets" in options and kind != AttackKind.MAXIMAL_GAIN:
        raise AttackError(f"attack {text!r}: only {AttackKind.MAXIMAL_GAIN} takes targets=")
    if "share" not in options:
        raise AttackError(f"attack {text!r}: needs share=, such as {kind}:share=0.01")
    try:
        share, targets = float(options["share"]), int(options.get("targets", _DEFAULT_TARGETS))
    except ValueError as error:
        raise AttackError(f"attack {text!r}: {error}") from error
    if not 0 < share < 1 or targets < 1:
        raise AttackError(f"attack {text!r}: share must be in (0, 1) and targets at least 1")
    return Attack(AttackKind(kind), share, targets, string if named else None)


def forge(
    attack: Attack,
    n: int,
    targets: tuple[str, ...],
    params: RapporParams,
    rng: np.random.Generator,
    open_type: OpenStringType | None = None,
) -> tuple[IntArray, ByteArray]:
    """Make n forged reports for at least one target, unless they are random: cohorts and bits."""
    if attack.kind in {AttackKind.REPLAY, AttackKind.FALSE_VALUE}:
        different = n if attack.kind is AttackKind.FALSE_VALUE else 1
        clients = SimulatedClients(targets, params, rng, open_type)
        cohorts, bits = clients.report(np.zeros(different, dtype=np.int64))
        return np.resize(cohorts, n), np.resize(bits, (n, bits.shape[1]))
    cohorts = rng.integers(params.m, size=n)
    nothing = np.zeros((n, params.k // 8), dtype=np.uint8)
    if attack.kind is AttackKind.RANDOM:
        return cohorts, bernoulli_bytes(rng, nothing, 0.5, 0.5)
    absent, _ = reported_chances(params)
    noise = bernoulli_bytes(rng, nothing, absent, absent)
    of_targets = true_bits(targets, params, open_type)
    wanted = np.zeros_like(noise)
    for target in range(len(targets)):
        wanted |= of_targets.take(np.full(n, target), cohorts)
    return cohorts, noise | wanted if params.q > params.p else noise & ~wanted


def choose_targets(
    attack: Attack, candidates: tuple[str, ...], truth: FloatArray
) -> tuple[str, ...]:
    """Return the string that is named, or as many candidates as there are targets: the rarest."""
    if not attack.needs_target:
        return ()
    if attack.string is not None:
        return (attack.string,)
    rarest = np.argsort(truth, kind="stable")[: attack.targets]
    return tuple(candidates[i] for i in rarest.tolist())
