"""Forged reports, as an attacker who controls a share of all reports would send them.

What they can do to estimates, and which of them are noticed, is worked out in
docs/understand/attacks.md; here they are made, so that it can be tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from hubbub.inference.arrays import ByteArray, FloatArray, IntArray
from hubbub.protocol.metric_types.open_strings import OpenStringType
from hubbub.protocol.params import RapporParams
from hubbub.simulations.simulated_clients.bernoulli import bernoulli_bytes
from hubbub.simulations.simulated_clients.clients import SimulatedClients, reported_chances
from hubbub.simulations.simulated_clients.true_bits import true_bits

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
