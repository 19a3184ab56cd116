"""Makers of counts and decodings for the tests of this folder."""

import hashlib
from collections.abc import Sequence

import numpy as np

from evaluation.studies.cases import count_simulated
from factories import make_params
from hubbub.client import RapporParams
from hubbub.decoder import CohortCounts, Correction, Decoding, Summary
from hubbub.inference import NO_GROUPS, AnomalyReport, CollisionGroups, FloatArray
from hubbub.protocol import CohortSpread, Repeats, SetBits
from hubbub.reporting import Provenance, Source, parameters_digest

CLEAR = make_params(k=64, h=2, m=16, f=0.1, p=0.1, q=0.9)
"""Little noise: a few thousand reports tell a handful of strings apart."""


def counts_of(
    held: dict[str, int], params: RapporParams = CLEAR, seed: int = 20140814
) -> CohortCounts:
    indices = np.repeat(np.arange(len(held)), list(held.values()))
    return count_simulated(tuple(held), indices, params, np.random.default_rng(seed))


def make_decoding(
    candidates: Sequence[str],
    share: Sequence[float] | None = None,
    detected: Sequence[bool] | None = None,
    *,
    n_reports: int = 1000,
    correction: Correction = Correction.BH,
    unknown_share: float = 0.25,
    same_bits: CollisionGroups = NO_GROUPS,
) -> Decoding:
    """Return a decoding whose shares are given: a standard error of 0.01 and p = 1e-9 each."""
    n = len(candidates)
    shares: FloatArray = np.array(share if share is not None else [0.5 / n] * n, dtype=np.float64)
    known = np.where(np.isnan(shares), np.nan, 1.0)
    found = np.array(detected if detected is not None else [True] * n, dtype=np.bool_)
    return Decoding(
        candidates=candidates,
        share=shares,
        std_error=0.01 * known,
        low=shares - 0.02,
        high=shares + 0.02,
        p_value=np.full(n, 1e-9),
        q_value=np.full(n, 2e-9),
        detected=found,
        constrained_share=np.where(found, np.nan_to_num(shares), 0.0),
        same_bits=same_bits,
        summary=Summary(
            reports=n_reports,
            cohorts=16,
            empty_cohorts=1,
            candidates=n,
            detected=int(found.sum()),
            indistinguishable=int(np.isnan(shares).sum()),
            alpha=0.05,
            correction=correction,
            method="least squares",
            method_reason="from bit counts",
            settled=True,
            duality_gap=float("nan"),
            epsilon_permanent=11.8,
            epsilon_report=4.4,
            detection_limit=0.03,
            unknown_share=unknown_share,
            unknown_std_error=0.02,
            unlisted_share=0.1,
            unlisted_std_error=0.03,
            forged_share=0.01,
            forgery_shift=0.025,
        ),
        excess_deviation=0.001,
    )


def make_provenance() -> Provenance:
    """Return where nothing comes from."""
    return Provenance(
        versions={"hubbub": "0.1.0", "python": "3.11.7"},
        metric="homepage",
        metric_version=1,
        parameters=CLEAR._asdict(),
        parameters_sha256=parameters_digest(CLEAR._asdict()),
        settings={"alpha": "0.05", "correction": "bh"},
        days="the first to the last",
        sources=(Source("candidates", "names.txt", hashlib.sha256(b"names").hexdigest()),),
    )


def make_anomalies() -> AnomalyReport:
    """Return what honest reports show."""
    return AnomalyReport(
        alarm=1e-6,
        bits=128,
        cohorts=64,
        improbable=0,
        plausible=SetBits(15, 90),
        repeats=Repeats(assessed=True, sampled=9000, most=1, plausible=3, suspicious=0),
        balance=CohortSpread(cohort=7, ratio=1.125, clients_must_send=0.5),
        reports_a_client=100,
    )
