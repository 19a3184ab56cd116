"""A joint experiment as a result: the true table beside the decoded one, and how good that was."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hubbub.inference.arrays import FloatArray
from hubbub.reporting.charts import Chart, HeatMap, Labels
from hubbub.reporting.formats.picture import write_picture
from hubbub.reporting.result import Block, Line, Report, Result, Section, Table, headings
from hubbub.simulations.experiments.charts import estimates_chart
from hubbub.simulations.experiments.joint import JointExperiment, JointOutcome
from hubbub.simulations.experiments.joint_scoring import COMMON, Coverage, JointScore
from hubbub.simulations.experiments.result import cell, write_page
from hubbub.simulations.experiments.scoring import DecodedShares

_ON_MAP = 20
_INTERVALS = {
    "cells": "cells",
    "common_cells": f"cells above {COMMON:.1%}",
    "margins": "margins",
    "conditionals": "conditional shares",
    "strength": "Cramer's V",
}


@dataclass(frozen=True, slots=True)
class JointExperimentResult(Result):
    """What was tried, and how it went.

    It holds no times, so the same outcome makes the same bytes.

    Attributes
    ----------
    options : mapping
        Of the command, as they are to be shown.
    """

    experiment: JointExperiment
    outcome: JointOutcome
    options: Mapping[str, object]

    def document(self) -> Mapping[str, object]:
        """Return everything that result.json says."""
        experiment, outcome = self.experiment, self.outcome
        table = outcome.decoding.table
        return {
            "version": version("hubbub"),
            "options": dict(self.options),
            "params": experiment.params._asdict(),
            "seed": experiment.seed,
            "reports": experiment.reports,
            "cells": len(experiment.population.values),
            "score": _score_json(outcome.score),
            "independence": [asdict(each) for each in table.independence] if table else None,
        }

    def blocks(self) -> Iterator[Block]:
        """Yield how often intervals held the truth, and the score in words."""
        yield self._coverage_table()
        yield from map(Line, self._sentences())

    def charts(self) -> dict[str, Chart]:
        """Return the page's charts by the names of their files."""
        decoding, population = self.outcome.decoding, self.experiment.population
        cells = decoding.cells
        shares = DecodedShares(
            cells.share, cells.std_error, cells.low, cells.high, cells.p_value, cells.detected, {}
        )
        names = tuple(
            ", ".join(each.labels[i] for each, i in zip(population.fields, place, strict=True))
            for place in np.ndindex(population.shape)
        )
        title = f"{self.experiment.reports:,} reports, {len(names):,} cells"
        return {
            "truth": self._map("true-table", "The true table", population.shares),
            "refit": self._map("refit-table", "The decoded table, refit", cells.refit),
            "estimates": estimates_chart(names, population.shares, shares, title, "cells"),
        }

    def write(self, folder: Path) -> None:
        """Write result.json, report.html and the charts as PNG into a folder that exists."""
        write_page(self, folder)
        for name, chart in self.charts().items():
            write_picture(folder / f"{name}.png", [chart])

    def report(self) -> Report:
        """Return the page."""
        charts = self.charts()
        seeded, *others = self._sentences()
        everything = {**self.options, **self.experiment.params._asdict()}
        sections = [
            Section("How good it was", tuple(others), tables=(self._coverage_table(),)),
            Section("The table", charts=(charts["truth"], charts["refit"])),
            Section("Cells", charts=(charts["estimates"],)),
            Section("What was tried", facts={k: cell(v) for k, v in everything.items()}),
        ]
        return Report("A simulated population of several fields", seeded, sections)

    def _map(self, name: str, title: str, shares: FloatArray) -> HeatMap:
        """Draw the first two fields' commonest values; they are in the order of their truth."""
        population = self.experiment.population
        others = tuple(range(2, len(population.shape)))
        table = 100 * np.nan_to_num(shares).reshape(population.shape).sum(axis=others)
        rows, columns = (field.labels[:_ON_MAP] for field in population.fields[:2])
        y, x = (field.name for field in population.fields[:2])
        described = (
            f"Shares of all reports: {len(rows)} of {len(table):,} values of {y} and "
            f"{len(columns)} of {table.shape[1]:,} of {x}, the commonest."
        )
        return HeatMap(
            Labels(name, title, described, x, y),
            rows,
            columns,
            table[:_ON_MAP, :_ON_MAP],
            table.sum(axis=1)[:_ON_MAP],
            table.sum(axis=0)[:_ON_MAP],
        )

    def _coverage_table(self) -> Table:
        score = self.outcome.score
        rows = tuple(
            (what, f"{found.intervals:,}", cell(found.share))
            for what, found in ((_INTERVALS[name], getattr(score, name)) for name in _INTERVALS)
        )
        heads = headings("95% intervals of", "how many", "share that holds the truth")
        return Table("Coverage", heads, rows)

    def _sentences(self) -> list[str]:
        experiment, score = self.experiment, self.outcome.score
        names = " by ".join(str(size) for size in experiment.population.shape)
        seeded = (
            f"{experiment.reports:,} reports of a table of {names} values; seed {experiment.seed}."
        )
        distance = (
            f"Total variation {score.total_variation:.4f} of the constrained shares and "
            f"{score.total_variation_refit:.4f} of the refit ones; {score.detected:,} cells were "
            "detected."
        )
        if math.isnan(score.p_value):
            return [seeded, distance, "Too few values are known for a table and its tests."]
        verdict = "rejected" if score.rejected else "not rejected"
        tested = (
            f"Independence was {verdict} (p = {score.p_value:.2g}); {score.departures:,} cells "
            f"are said to depart from it, {score.wrong_departures:,} of them wrongly."
        )
        return [seeded, distance, tested]


def _score_json(score: JointScore) -> dict[str, object]:
    """Return the score with the share of each coverage."""
    found = {**asdict(score), "rejected": score.rejected}
    for name in _INTERVALS:
        own: Coverage = getattr(score, name)
        found[name] = {**asdict(own), "share": own.share}
    return found
