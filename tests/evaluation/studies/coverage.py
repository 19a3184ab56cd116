"""How often intervals of listed strings hold the truth, regime by regime.

Regimes are those of `evaluation.studies.ablation` from number 1,000 on, which no constant of the
decoder was chosen by. docs/understand/statistics.md quotes the sentences below the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from evaluation.laboratory import Figure
from evaluation.studies.ablation import Regime, Tally, covered, draw_regime, tallied
from evaluation.studies.regimes import ALPHA
from evaluation.studies.study import Study
from hubbub.decoder import decode
from hubbub.inference import ONCE_OF_REPORTS

_ENOUGH = 400  # intervals: then a regime's standard error is .011
_FEWEST, _MOST = 50, 2_000  # intervals of a regime that is judged; runs
_SECONDS = 12.0  # of CPU: a hundred regimes in about ten minutes on two cores
_BAND = 0.93, 0.97
_MOST_FALSE = 0.08


@dataclass(frozen=True, slots=True)
class RepeatedRegime:
    """A regime, decoded until there are enough intervals of present and of detected strings."""

    regime: Regime

    @property
    def name(self) -> str:
        return self.regime.name

    @property
    def work(self) -> float:
        return self.regime.work

    def run(self, number: int) -> list[Tally]:
        """Return what each run found; the time is that of collecting and of decoding."""
        regime, tallies, total, spent = self.regime, list[Tally](), Tally(), 0.0
        while spent < _SECONDS and len(tallies) < _MOST:
            begin = time.process_time()
            rng = np.random.default_rng([60, number, len(tallies), *self.name.encode()])
            counts, candidates, truth = regime.collect(rng)
            made = decode(counts, regime.params, candidates, alpha=ALPHA, repeats=ONCE_OF_REPORTS)
            seconds = time.process_time() - begin
            tallies.append(tallied(truth, made, seconds))
            total, spent = total + tallies[-1], spent + seconds
            if min(total.present, total.found + total.false) >= _ENOUGH:
                break
        return tallies


_Scores = Sequence[Sequence[Tally]]
"""Of a regime: of each trial its runs."""
_KINDS: dict[str, Callable[[Tally], tuple[float, float]]] = {
    "present": lambda run: run.of_present,
    "detected": lambda run: run.of_detected,
}


def _runs(scores: _Scores) -> list[Tally]:
    return list(chain.from_iterable(scores))


def _coverage(kind: str, scores: _Scores) -> Figure:
    return covered([_KINDS[kind](run) for run in _runs(scores)])


def _false_share(scores: _Scores) -> Figure:
    return Figure.of([run.false_share for run in _runs(scores)])


def _notes(cases: Sequence[RepeatedRegime], scores: Sequence[_Scores]) -> tuple[str, ...]:
    low, high = _BAND
    notes = []
    for kind, intervals in _KINDS.items():
        judged = [
            (case.name.split()[-1], _coverage(kind, each))
            for case, each in zip(cases, scores, strict=True)
            if sum(intervals(run)[1] for run in _runs(each)) >= _FEWEST
        ]
        within = sum(low <= one.mean <= high for _, one in judged)
        outside = [
            f"{name} ({one})"
            for name, one in judged
            if one.mean + 2 * one.std_error < low or one.mean - 2 * one.std_error > high
        ]
        mean = np.mean([one.mean for _, one in judged])
        notes.append(
            f"{kind.capitalize()} strings: {mean:.3f} of the intervals hold on average over "
            f"{len(judged)} regimes with {_FEWEST} or more; {within} are from {low} to {high}, "
            f"{len(judged) - len(outside)} within two standard errors of it. Outside: "
            f"{', '.join(outside) or 'none'}."
        )
    false = [(case.name, _false_share(each)) for case, each in zip(cases, scores, strict=True)]
    above = [f"{name} ({one})" for name, one in false if one.mean > _MOST_FALSE]
    notes.append(
        f"False names: {np.mean([one.mean for _, one in false]):.3f} of the detected on average "
        f"over {len(false)} regimes; above {_MOST_FALSE}: {', '.join(above) or 'none'}."
    )
    return tuple(notes)


def _parameters(case: RepeatedRegime, _: object) -> str:
    p = case.regime.params
    return f"k {p.k}, h {p.h}, m {p.m}, f {p.f:.2f}, p {p.p:.2f}, q {p.q:.2f}"


def _unlisted(case: RepeatedRegime, _: object) -> str:
    others = case.regime.shares[case.regime.listed :]
    return f"{others.sum():.2f}, {others.max(initial=0):.2f}"


STUDY = Study(
    "Intervals of listed strings over random regimes",
    "How often intervals hold, over random regimes of listed strings.\n\n\b\n"
    "listed, absent    candidates that are held, and others\n"
    "unlisted          share of all unlisted strings, and of the largest\n"
    "present, detected share of the intervals of such strings that hold\n"
    "false share       of the detected, mean of the runs",
    lambda: [RepeatedRegime(draw_regime(number)) for number in range(1_000, 1_100)],
    {
        "regime": lambda case, _: case.name,
        "parameters": _parameters,
        "reports": lambda case, _: case.regime.reports,
        "listed": lambda case, _: case.regime.listed,
        "absent": lambda case, _: case.regime.absent,
        "unlisted": _unlisted,
        "runs": lambda _, scores: len(_runs(scores)),
        "present": lambda _, scores: _coverage("present", scores),
        "detected": lambda _, scores: _coverage("detected", scores),
        "false share": lambda _, scores: _false_share(scores),
        "CPU s": lambda _, scores: sum(run.seconds for run in _runs(scores)),
    },
    notes=_notes,
)
