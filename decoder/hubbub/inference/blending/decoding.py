"""A decoding of local reports and a central release of an opted-in group -> one decoding.

Both groups are taken to be drawn from one population, whose shares the blended figures are. The
release is evidence only by its numbers: that a key stands in it says nothing, for keys may be
public. Blended strings are tested by both signs together; strings that the release hasn't, and
candidates that can't be told apart, keep their local figures, and all are corrected together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hubbub.inference.arrays import BoolArray, FloatArray, IntArray
from hubbub.inference.blending.distribution import BlendedShares, intervals, two_sided_p_values
from hubbub.inference.blending.noise import cutoff_sign, log_p_values
from hubbub.inference.blending.release import CentralRelease
from hubbub.inference.blending.shares import Pooled, Variances, fitted_to_one, pool
from hubbub.inference.decoding import Decoding
from hubbub.inference.testing.intervals import Z_CONFIDENCE, after_selection
from hubbub.inference.testing.multiple_testing import (
    counted_tests,
    log_cutoff,
    log_q_values,
    z_scores,
)
from hubbub.inference.testing.totals import selection_bias

LEVEL = 0.05
"""Level of the test that both groups are of one population: by convention."""
_SURE = 10.0  # standard errors beyond its cutoff, where a string's selection doesn't matter
_COMPARED_FROM = 1.0  # standard errors of the difference that a share must have to be compared


@dataclass(frozen=True, slots=True)
class BlendSummary:
    """What a reader of blended figures must know besides them.

    Attributes
    ----------
    users : float
        Noisy number of users whom the release counted.
    noise_std_dev : float
        Of each of its counts.
    keys : int
        Of the release.
    blended : int
        Candidates with both shares, or a central one where the reports don't determine theirs.
    not_released : int
        Candidates without a central count, or that can't be told from another candidate.
    not_listed : int
        Keys that no candidate names: they are left out.
    local_detected : int
        Candidates, one a group, that the reports alone detect.
    compared : int
        Strings by which the groups were compared.
    p_value : float
        Of "both groups are drawn from one population"; nan if nothing could be compared.
    different : tuple of str
        Strings by which they differ, at most a level of .05 for all together.
    """

    release: str
    mechanism: str
    epsilon: float
    delta: float
    users: float
    noise_std_dev: float
    keys: int
    blended: int
    not_released: int
    not_listed: int
    local_detected: int
    compared: int
    p_value: float
    different: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the groups are seen to be of different populations."""
        return self.p_value <= LEVEL


@dataclass(frozen=True, slots=True)
class Blending:
    """Blended figures of all candidates, and what they were made of; nan where there is none.

    Attributes
    ----------
    decoding : Decoding
        With blended figures in place of the local ones.
    local, local_std_error : float64 array, shape (n,)
        By the reports alone.
    central, central_std_error : float64 array, shape (n,)
        Share of the opted-in group, as an estimate of the population's.
    central_weight : float64 array, shape (n,)
        Of the central share in the blended one; 0 where the figures are local.
    difference_p_value : float64 array, shape (n,)
        Of "the population's share is the same in both groups", of strings that were compared.
    """

    decoding: Decoding
    local: FloatArray
    local_std_error: FloatArray
    central: FloatArray
    central_std_error: FloatArray
    central_weight: FloatArray
    difference_p_value: FloatArray
    summary: BlendSummary


def blend(local: Decoding, release: CentralRelease) -> Blending:
    """Blend local estimates and a release's by inverse variance, and test all candidates anew.

    Parameters
    ----------
    local : Decoding
        Of reports.
    release : CentralRelease
        Of an opted-in group's counts.

    Notes
    -----
    Of a noisy number of users n and a count c with noise of variance v the central share is c / n
    with variance s(1 - s) / n + v / n^2 + s^2 var_n / n^2; the local one has its standard error
    about the N collected reports, and D s(1 - s) / N (`repeated_reports`) at the *blended* share.
    """
    same, strings = local.same_bits, local.candidates
    everything = list(range(len(release.keys)))
    if not len(same.rows):
        return _blend(_Counted.of(local, release, everything))
    grouped = {strings[row] for row in np.union1d(same.rows, same.first).tolist()}
    wanted = [place for place in everything if release.keys[place] not in grouped]
    counted = _Counted.of(local.distinct(), release, wanted)
    blending, alone = _blend(counted), same.others(len(strings))
    places = np.empty(len(strings), dtype=np.int64)
    places[alone] = np.arange(len(alone))
    places[same.rows] = places[same.first]
    columns = (
        "local", "local_std_error", "central", "central_std_error", "central_weight",
        "difference_p_value",
    )  # fmt: skip
    return replace(
        blending,
        decoding=blending.decoding.with_groups(strings, same),
        summary=replace(
            blending.summary,
            not_released=len(strings) - len(counted.rows),
            not_listed=len(wanted) - len(counted.rows),
        ),
        **{name: getattr(blending, name)[places] for name in columns},
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    """The r candidates that the release has counted, of which no two set the same bits.

    Attributes
    ----------
    rows : int64 array, shape (r,)
        Which candidates they are, in ascending order.
    counts, local : float64 array, shape (r,)
        Central counts, and local shares.
    variances : Variances
    pooled : Pooled
    gain : float64 array, shape (r,)
        See `log_p_value`.
    z : float64 array, shape (r,)
        Of the local p-values.
    """

    decoding: Decoding
    release: CentralRelease
    rows: IntArray
    counts: FloatArray
    local: FloatArray
    variances: Variances
    pooled: Pooled
    gain: FloatArray
    z: FloatArray

    @property
    def central(self) -> FloatArray:
        """The central shares."""
        return self.counts / self.release.total

    @property
    def possible(self) -> FloatArray:
        """The blended shares within [0, 1]."""
        return np.clip(self.pooled.share, 0.0, 1.0)

    @classmethod
    def of(
        cls,
        decoding: Decoding,
        release: CentralRelease,
        wanted: list[int],
    ) -> _Counted:
        """Find the candidates of some keys, and blend their shares."""
        places = {release.keys[place]: place for place in wanted}
        found = [
            (row, places[string])
            for row, string in enumerate(decoding.candidates)
            if string in places
        ]
        rows, keys = np.array(found, dtype=np.int64).reshape(-1, 2).T
        local, counts = decoding.share[rows], release.counts[keys]
        own = np.maximum(decoding.std_error**2 - decoding.sampling_variance, 0.0)[rows]
        error = np.where(np.isnan(local), np.inf, np.sqrt(own))
        variances = Variances(
            error**2,
            decoding.summary.reports / decoding.summary.repeats.clients,
            release.noise.variance,
            release.total,
            release.total_variance,
        )
        return cls(
            decoding,
            release,
            rows,
            counts,
            local,
            variances,
            pool(local, counts / release.total, variances),
            gain=error * release.total / release.noise.variance,
            z=z_scores(_logs(decoding.p_value[rows])),
        )


@dataclass(frozen=True, slots=True)
class _Tests:
    """Tests of all candidates: ln p, ln q, what is detected, and the largest ln p that is."""

    log_p: FloatArray
    log_q: FloatArray
    detected: BoolArray
    log_cutoff: float
    n_tests: float


def _blend(counted: _Counted) -> Blending:
    local, rows, pooled = counted.decoding, counted.rows, counted.pooled
    tests = _tested(counted)
    share, std_error = local.share.copy(), local.std_error.copy()
    weight = np.zeros(len(share))
    share[rows], std_error[rows], weight[rows] = pooled.share, pooled.std_error, pooled.weight
    low, high = _local_intervals(local, tests)
    low[rows], high[rows] = _blended_intervals(counted, tests)
    found = np.flatnonzero(tests.detected)
    constrained = np.zeros(len(share))
    constrained[found] = fitted_to_one(share[found], std_error[found] ** 2)
    unknown, unknown_error = _unknown_mass(counted, tests, share, std_error)
    central, central_error, differences = np.full((3, len(share)), np.nan)
    central[rows] = counted.central
    central_error[rows] = np.sqrt(counted.variances.of_central(counted.possible))
    compared, p_values = _compared(counted)
    differences[rows[compared]] = p_values
    release = counted.release
    return Blending(
        decoding=replace(
            local,
            share=share,
            std_error=std_error,
            low=low,
            high=high,
            p_value=np.exp(tests.log_p),
            q_value=np.exp(tests.log_q),
            detected=tests.detected,
            constrained_share=constrained,
            summary=replace(
                local.summary,
                detected=len(found),
                unknown_share=unknown,
                unknown_std_error=unknown_error,
            ),
        ),
        local=local.share,
        local_std_error=local.std_error,
        central=central,
        central_std_error=central_error,
        central_weight=weight,
        difference_p_value=differences,
        summary=BlendSummary(
            release=release.name,
            mechanism=release.mechanism,
            epsilon=release.epsilon,
            delta=release.delta,
            users=release.total,
            noise_std_dev=float(np.sqrt(release.noise.variance)),
            keys=len(release.keys),
            blended=len(rows),
            not_released=len(share) - len(rows),
            not_listed=len(release.keys) - len(rows),
            local_detected=local.summary.detected,
            compared=len(compared),
            p_value=min(len(compared) * float(p_values.min()), 1.0) if len(compared) else np.nan,
            different=tuple(
                local.candidates[row]
                for row in rows[compared[p_values * len(compared) <= LEVEL]].tolist()
            ),
        ),
    )


def _tested(counted: _Counted) -> _Tests:
    """Test each candidate by all that is known of it, and correct for their number."""
    summary = counted.decoding.summary
    log_p = _logs(counted.decoding.p_value)
    log_p[counted.rows] = log_p_values(
        counted.z, counted.counts, counted.gain, counted.release.noise
    )
    n_tests = counted_tests(log_p, summary.correction)
    raised = n_tests * counted.decoding.allowance
    log_q = log_q_values(log_p, summary.correction, raised)
    detected = log_q <= np.log(summary.alpha)
    cutoff = log_cutoff(
        int(detected.sum()), raised, float(np.log(summary.alpha)), summary.correction
    )
    return _Tests(log_p, log_q, detected, cutoff, n_tests)


def _blended_intervals(counted: _Counted, tests: _Tests) -> tuple[FloatArray, FloatArray]:
    """Return intervals of the blended shares, of the detected those that hold given detection."""
    pooled, release, possible = counted.pooled, counted.release, counted.possible
    local = counted.variances.of_local(possible)
    local = np.where(np.isinf(local), 0.0, local) * (1 - pooled.weight) ** 2
    of_total = (pooled.weight * possible / release.total) ** 2 * release.total_variance
    shares = BlendedShares(pooled.weight, np.sqrt(local + of_total), release.users, release.noise)
    threshold = _thresholds(counted, tests)
    return intervals(shares, pooled.share, pooled.std_error, threshold)


def _thresholds(counted: _Counted, tests: _Tests) -> FloatArray:
    """Return the shares at which detected strings would just be detected; -inf for others.

    That is the part of both of a string's signs at which its p-value would be the cutoff.
    """
    sign = np.where(
        np.isinf(counted.gain), counted.counts, counted.z + counted.gain * counted.counts
    )
    reached, needed = z_scores(tests.log_p[counted.rows]), z_scores(np.array(tests.log_cutoff))
    found = tests.detected[counted.rows]
    parts = np.where(found, needed / np.maximum(reached, needed), -np.inf)
    log_gain = np.round(np.log(counted.gain), 2)  # errors are alike, so few differ
    for each in np.unique(log_gain[found]).tolist():
        cutoff = cutoff_sign(tests.log_cutoff, float(np.exp(each)), counted.release.noise)
        near = found & (log_gain == each) & (reached < needed + _SURE)
        parts[near] = np.minimum(cutoff / sign[near], 1.0)
    return np.where(found, parts * counted.pooled.share, -np.inf)


def _local_intervals(local: Decoding, tests: _Tests) -> tuple[FloatArray, FloatArray]:
    """Return intervals of local shares, given whether they are detected *now*.

    Those of strings for which that is as before are kept.
    """
    low, high = local.low.copy(), local.high.copy()
    lost = local.detected & ~tests.detected
    low[lost] = local.share[lost] - Z_CONFIDENCE * local.std_error[lost]
    high[lost] = local.share[lost] + Z_CONFIDENCE * local.std_error[lost]
    new = np.flatnonzero(tests.detected & ~local.detected & (local.share > 0))
    if len(new):
        needed = float(z_scores(np.array(tests.log_cutoff)))
        threshold = local.share[new] * np.minimum(needed / z_scores(tests.log_p[new]), 1.0)
        low[new], high[new] = after_selection(local.share[new], local.std_error[new], threshold)
    return low, high


def _compared(counted: _Counted) -> tuple[IntArray, FloatArray]:
    """Return which strings the groups are compared by, and the p-value of each.

    Notes
    -----
    Compared are strings whose share is at least the standard error of the difference: of others no
    difference could be seen. The choice doesn't lean on the difference, for by these weights the
    blended share and the difference are uncorrelated: w var_central = (1 - w) var_local.
    """
    possible, release = counted.possible, counted.release
    local = counted.variances.of_local(possible)
    error = np.sqrt(local + counted.variances.of_central(possible))
    chosen = np.flatnonzero(possible >= _COMPARED_FROM * error)
    true = possible[chosen]
    of_total = (true / release.total) ** 2 * release.total_variance
    difference = BlendedShares(
        np.ones(len(chosen)), np.sqrt(local[chosen] + of_total), release.users, release.noise
    )
    at = true + (counted.central - counted.local)[chosen]
    return chosen, two_sided_p_values(difference, true, at)


def _unknown_mass(
    counted: _Counted, tests: _Tests, share: FloatArray, std_error: FloatArray
) -> tuple[float, float]:
    """Return the share of the population with none of the detected strings, and its error.

    Notes
    -----
    How local errors go together isn't known here, but for the sum of the locally detected: the
    others' are taken to go together as much.
    """
    local, detected = counted.decoding, tests.detected
    bias, added = selection_bias(
        share, std_error, tests.log_p, detected, tests.log_cutoff, tests.n_tests
    )
    weight = np.zeros(len(share))
    weight[counted.rows] = counted.pooled.weight
    of_local = (np.nan_to_num(local.std_error) * (1 - weight))[detected] ** 2
    of_central = np.maximum(std_error[detected] ** 2 - of_local, 0.0)
    together, alone = local.summary.unknown_std_error**2, local.std_error[local.detected]
    if len(alone) and np.isfinite(together):
        of_local *= together / float(alone @ alone)
    in_total = float(weight[detected] @ share[detected]) / counted.release.total
    variance = float(of_local.sum() + of_central.sum())
    variance += in_total**2 * counted.release.total_variance
    return 1.0 - (float(share[detected].sum()) - bias), float(np.sqrt(variance + added))


def _logs(p_values: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p_values))
