"""Forged reports, as an attacker who controls a share of all reports would send them.

What they can do to estimates, and which of them are noticed, is worked out in
docs/understand/attacks.md; here they are made, so that it can be tried.

What an attacker really learns from one simulated report, beside what epsilon allows.

Two values' reports are drawn, and how often each shows the pattern that distinguishes them best:
the bits that only the first sets are 1, those that only the second sets 0. The logarithm of the
ratio of the two frequencies is a lower estimate of what a report reveals, and must not exceed
epsilon_report.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from hubbub.inference.arrays import ByteArray, FloatArray, IntArray
from hubbub.protocol.bloom import canonical_bytes
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams
from hubbub.simulations.simulated_clients.bernoulli import (
    bernoulli_bytes,
    packed_filters,
    true_bits,
)
from hubbub.simulations.simulated_clients.clients import SimulatedClients, reported_chances

_ALARM = 1e-6
"""Of either bound: an audit in a million says that a promise was broken which was kept."""
_PAIRS = 200


@dataclass(frozen=True, slots=True)
class Audit:
    """What was seen, and what was promised."""

    epsilon_report: float  # the promise
    # Logarithm of the ratio of the two frequencies; inf if the second value never showed it.
    observed: float
    # Exact lower bound of what is revealed; above epsilon_report with probability 2e-6 at most.
    at_least: float
    reports: int  # of each value

    @property
    def kept(self) -> bool:
        """Whether the promise was kept, as far as this can tell."""
        return self.at_least <= self.epsilon_report


def audit_epsilon(params: RapporParams, reports: int, rng: np.random.Generator) -> Audit:
    """Try to tell two values apart by single reports of cohort 0.

    `reports`: reports of each value.
    """
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
    """What forgers send."""

    MAXIMAL_GAIN = "maximal-gain"
    """Noise like an honest client's, but every bit of every target as if it were true."""
    RANDOM = "random"
    """Fair coins."""
    REPLAY = "replay"
    """One honest report of a target, again and again."""
    FALSE_VALUE = "false-value"
    """What an honest client would send that holds the target."""


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
    """Read a description such as `maximal-gain:targets=5,share=0.01`.

    `string=`, which names the target, comes last, for what it names may hold commas.

    Raises `AttackError` if it names no attack, an unknown option or one twice, or a number out of
    range.
    """
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
    """Make forged reports.

    `n`: reports. `targets`: at least one, unless the reports are random. `open_type`: the metric's
    type, if its values are open strings; otherwise they are strings. Returns `cohorts`, shape (n,).
    `bits`, shape (n, k / 8).
    """
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
    """Return the string that is named, or as many candidates as there are targets.

    Those that the fewest clients hold are taken. Random reports have none.

    `truth`, shape (n,): share of each candidate.
    """
    if not attack.needs_target:
        return ()
    if attack.string is not None:
        return (attack.string,)
    rarest = np.argsort(truth, kind="stable")[: attack.targets]
    return tuple(candidates[i] for i in rarest.tolist())
