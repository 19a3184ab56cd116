"""From the most likely mixture to an estimate, an error and a p-value of *every* candidate.

A candidate in the model has its share there, every other one the share that it would have if it
alone were let free (one Newton step, which is what makes it unbiased). Errors come from the
observed information, widened by what unlisted strings add; docs/likelihood.md derives all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.decoder.arrays import BoolArray, FloatArray, IntArray
from hubbub.decoder.candidates.listing import Candidates
from hubbub.decoder.errors import UndecodableError
from hubbub.decoder.inference.hash_null import HashNull
from hubbub.decoder.likelihood.cells import tabulate, totals
from hubbub.decoder.likelihood.mixture import Solution
from hubbub.decoder.likelihood.model import FreeModel, let_free, probe
from hubbub.decoder.likelihood.sums import Mixture, Overlaps
from hubbub.decoder.likelihood.terms import distinct_positions
from hubbub.decoder.likelihood.tests import member_scores, weigh_scores

_EXACT_WORK = 2e10
_LEAST_EXACT, _EXACT_AT_ONCE = 256, 512
_TINY = 1e-9
_LEAST_INFORMATION = 1.0
"""Of reports about a string's share: its standard error, 1 over the root, is below 100%."""
_LEAST_NOISE = 1e-3  # of a variance that is left when the sampling of a string's own clients goes


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """How candidates were tested.

    Attributes
    ----------
    null : HashNull
        Distribution of an absent candidate's weighed score.
    by_part : float64 array, shape (a, parts)
        The members' scores if their estimates were the parts `PARTS` of what they are.
    """

    null: HashNull
    by_part: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Inference:
    """What the likelihood says of every candidate; nan where the reports can't tell.

    Attributes
    ----------
    share, std_error : float64 array, shape (n,)
        Unbiased share of the collected reports; negative where the reports speak against it.
    log_p : float64 array, shape (n,)
        ln of the one-sided p-value of "nobody has it".
    test : Test
    noise : HashNull
        Distribution of an absent candidate's score, unweighed, which is that of its estimate.
    members : int64 array, shape (a,)
        Candidates in the model, in ascending order.
    model_share : float64 array, shape (1 + a,)
        The unknown's share and theirs.
    covariance : float64 array, shape (1 + a, 1 + a)
        Of those, as estimates of the collected reports' true shares.
    overdispersion : float
        phi, by which unlisted strings make variances larger than the model's.
    """

    share: FloatArray
    std_error: FloatArray
    log_p: FloatArray
    test: Test
    noise: HashNull
    members: IntArray
    model_share: FloatArray
    covariance: FloatArray
    overdispersion: float


def infer(
    mixture: Mixture,
    solution: Solution,
    members: IntArray,
    candidates: Candidates,
    indistinguishable: BoolArray,
) -> Inference:
    """Estimate and test all candidates.

    Parameters
    ----------
    mixture : Mixture
    solution : Solution
        Its most likely shares.
    members : int64 array, shape (a,)
        Which candidates the mixture's members are, in ascending order.
    candidates : Candidates
    indistinguishable : bool array, shape (n,)
        Candidates that set the same bits as another one.

    Raises
    ------
    UndecodableError
        If a typical candidate's share would have a standard error of 100% or more.
    """
    model = let_free(mixture, solution, members)
    probes = probe(mixture, solution.shares)
    left_over = float(model.left_over(probes.own, probes.shared[:, model.kept]).mean())
    _require_information(left_over, mixture.reports.total)
    tables = tabulate(model.mixture, model.shares, model.step)
    weighed = weigh_scores(tables, mixture.reports.by_cohort)
    distribution = tables.score[:, tables.cells.of_tuple]
    phi = max(1.0, float(distribution.var(axis=1).sum()) / left_over)
    _require_information(left_over / phi, mixture.reports.total)

    in_tables = (tables.score, tables.information, tables.unknown, weighed.table)
    score, own, unknown, tested = totals(tables.cells, in_tables, candidates)
    information = _information(model, solution, probes, candidates, (score, own, unknown))
    known = (information > _TINY * own) & ~indistinguishable
    share = np.divide(score, information, out=np.full(len(score), np.nan), where=known)
    variance = np.divide(phi, information, out=np.full(len(score), np.nan), where=known)
    shares = model.shares + model.step
    share[model.rows] = shares[1:]
    variance[model.rows] = phi * np.diag(model.inverse)[1:]

    by_part = member_scores(mixture, solution, model, weighed, phi)
    tested[model.rows] = by_part[:, -1]
    log_p = weighed.null.log_tails(tested)
    log_p[np.isnan(share)] = 0.0
    n_reports = mixture.reports.total
    covariance = phi * model.inverse
    np.fill_diagonal(covariance, _without_sampling(np.diag(covariance), shares, n_reports))
    return Inference(
        share=share,
        std_error=np.sqrt(_without_sampling(variance, share, n_reports)),
        log_p=log_p,
        test=Test(weighed.null, by_part),
        noise=HashNull(distribution, 1),
        members=model.rows,
        model_share=shares,
        covariance=covariance,
        overdispersion=phi,
    )


def _require_information(information: float, n_reports: int) -> None:
    if not information > _LEAST_INFORMATION:  # it may be nan
        raise UndecodableError(
            f"likelihood: {n_reports:,} reports tell too little at these parameters; "
            "expected enough for standard errors below 100%. Use --method regression"
        )


def _without_sampling(variance: FloatArray, share: FloatArray, n_reports: int) -> FloatArray:
    """Take out what comes from drawing the string's own clients: share / N.

    The inverse information is the covariance about the *population's* shares but for
    -pi pi' / N (they add up to 1), and the collected reports' shares scatter about those by
    (diag(pi) - pi pi') / N. The difference is what the collected reports' shares are missed by.
    """
    sampling = np.clip(share, 0.0, 1.0) / n_reports
    return np.asarray(variance - np.minimum(sampling, (1 - _LEAST_NOISE) * variance))


def _information(
    model: FreeModel,
    solution: Solution,
    probes: Overlaps,
    candidates: Candidates,
    sums: tuple[FloatArray, FloatArray, FloatArray],
) -> FloatArray:
    """Return each candidate's information beyond the model's.

    It is exact for as many as can be afforded, the most present-looking first. Of the others it is
    exact beyond the unknown's, and the members' part is the average that random strings have.
    """
    score, own, unknown = sums
    shared = probes.shared[:, model.kept]
    of_unknown = float(solution.at.information[0, 0])
    beyond_unknown = (probes.own - shared[:, 0] ** 2 / of_unknown).mean()
    ratio = float(model.left_over(probes.own, shared).mean() / beyond_unknown)
    found = np.asarray(ratio * (own - unknown**2 / of_unknown))
    z = score / np.sqrt(np.maximum(found, _TINY))
    z[model.rows] = -np.inf
    work = model.mixture.reports.rows * len(model.kept)
    best = np.argsort(-z, kind="stable")[: max(int(_EXACT_WORK / work), _LEAST_EXACT)]
    exact = best[np.isfinite(z[best])]
    for first in range(0, len(exact), _EXACT_AT_ONCE):
        rows = exact[first : first + _EXACT_AT_ONCE]
        positions = distinct_positions(candidates.positions(rows), candidates.params)
        overlaps = model.mixture.overlaps(model.shares, positions)
        found[rows] = model.left_over(overlaps.own, overlaps.shared)
    return found
