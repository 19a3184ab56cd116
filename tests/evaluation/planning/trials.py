"""Strings planted at the share that the theory calls the limit, decoded, and counted if found.

The level of one test is that of the question, alpha / n, whatever the number of strings that are
really decoded: so a million candidates cost no more than fifty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from evaluation.calibration.trials import draw_records
from hubbub.decoder import CohortCounts, Correction, Decoding, count_records, decode
from hubbub.inference.arrays import BoolArray, FloatArray
from hubbub.inference.candidates import bit_positions, hashed
from hubbub.inference.likelihood.decoding import decode_reports
from hubbub.inference.packed import pack
from hubbub.planning.limits import DetectionTest, Method, detection_limit
from hubbub.protocol.params import RapporParams

_MOST_PLANTED = 10
_MOST_MASS = 0.4
_UNLISTED, _ABSENT = 300, 30


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table.

    Attributes
    ----------
    params : RapporParams
    reports : int
    candidates : float
    method : Method, optional
    """

    params: RapporParams
    reports: int
    candidates: float
    method: Method = Method.REGRESSION

    @property
    def question(self) -> DetectionTest:
        """The question, with the concentration of the strings that are really unlisted."""
        question = DetectionTest(self.candidates, method=self.method, concentration=0.0)
        for _ in range(5):  # what the unlisted hold depends on what is planted
            limit = detection_limit(self.params, self.reports, question)
            rest = 1 - _planted(limit) * limit
            question = replace(question, concentration=rest**2 / _UNLISTED)
        return question

    @property
    def limit(self) -> float:
        """The share that the theory predicts to be found with the question's power."""
        return detection_limit(self.params, self.reports, self.question)


def found_and_planted(setting: Setting, seed: int) -> tuple[int, int]:
    """Simulate one collection: return how many planted strings were found, and were there."""
    rng = np.random.default_rng(seed)
    limit, planted = setting.limit, _planted(setting.limit)
    names = [f"{seed} planted {i}" for i in range(planted)]
    unlisted = [f"{seed} unlisted {i}" for i in range(_UNLISTED)]
    rest = (1 - planted * limit) / _UNLISTED
    shares = np.concatenate([np.full(planted, limit), np.full(_UNLISTED, rest)])
    candidates = [*names, *(f"{seed} absent {i}" for i in range(_ABSENT))]
    alpha = setting.question.level * len(candidates)
    if setting.method is Method.LIKELIHOOD:
        held = rng.choice(len(shares), size=setting.reports, p=shares)
        records = draw_records((*names, *unlisted), held, setting.params, rng)
        detected = _detected_in_reports(records, setting.params, candidates, alpha)
    else:
        counts = count_reports([*names, *unlisted], shares, setting.params, setting.reports, rng)
        detected = _decode(counts, setting.params, candidates, alpha).detected
    return int(detected[:planted].sum()), planted


def _decode(
    counts: CohortCounts, params: RapporParams, candidates: list[str], alpha: float
) -> Decoding:
    return decode(counts, params, candidates, alpha=alpha, correction=Correction.BONFERRONI)


def _detected_in_reports(
    records: bytes, params: RapporParams, candidates: list[str], alpha: float
) -> BoolArray:
    counted = _decode(count_records(records, params), params, candidates, alpha)
    reports = pack([records], params)
    listed = hashed(candidates, params)
    return decode_reports(reports, counted, listed, reason="asked for", threads=1).detected


def count_reports(
    values: list[str],
    shares: FloatArray,
    params: RapporParams,
    n_reports: int,
    rng: np.random.Generator,
) -> CohortCounts:
    """Draw bit counts from their exact law: given who has what, bits are independent binomials."""
    positions = bit_positions(values, params).astype(np.int64)
    reports = rng.multinomial(n_reports, np.full(params.m, 1 / params.m))
    true = np.zeros((params.m, params.k), dtype=np.int64)
    for cohort in range(params.m):
        filters = np.zeros((len(values), params.k), dtype=np.int64)
        np.put_along_axis(filters, positions[:, cohort], 1, axis=1)
        true[cohort] = rng.multinomial(reports[cohort], shares) @ filters
    others = reports[:, None] - true
    bits = rng.binomial(true, params.q_star) + rng.binomial(others, params.p_star)
    return CohortCounts(reports, bits)


def limit_ratio(found: float, setting: Setting) -> float:
    """Return measured over predicted limit, from how many of the strings at the latter are found.

    They are found with probability Phi(z_power) if the limit is where it should be;
    the distance in standard errors, z_level + z, tells how far off it is.
    """
    question = setting.question
    level = float(stats.norm.isf(question.level))
    wanted = level + float(stats.norm.ppf(question.power))
    seen = level + float(stats.norm.ppf(min(max(found, 1e-3), 1 - 1e-3)))
    return wanted / seen


def _planted(limit: float) -> int:
    return max(1, min(_MOST_PLANTED, int(_MOST_MASS / limit))) if math.isfinite(limit) else 1
