"""A plan's two curves as a picture. Imported only for one: matplotlib is an extra."""

from __future__ import annotations

import math
from typing import BinaryIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from hubbub.decoder.planning.curves import Point, limit_by_epsilon, limit_by_reports
from hubbub.decoder.planning.plans import Comparison

_BLUE, _ORANGE = "#0b62a4", "#c2410c"
_FEW_POWERS = 50.0


def draw(found: Comparison, file: BinaryIO, form: str) -> None:
    """Draw the detectable share against epsilon and against N, the plan itself as a dot.

    Parameters
    ----------
    found : Comparison
    file : binary file, open for writing
    form : str
        "png" or "svg".
    """
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    best, budget = found.best, found.budget
    _curves(left, limit_by_epsilon(found))
    left.plot(best.params.epsilon_report, 100 * best.limit, "o", color=_BLUE)
    left.set(xlabel="epsilon of a report", title=f"{best.reports:,.0f} reports")
    _curves(right, limit_by_reports(found))
    right.plot(best.reports, 100 * best.limit, "o", color=_BLUE)
    right.set(xlabel="reports", title=f"epsilon {budget.report:g} a report")
    right.legend()
    metadata = {"Date": None} if form == "svg" else None
    figure.savefig(file, format=form, dpi=150, metadata=metadata)


def _curves(axes: Axes, points: list[Point]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name, color, label in (
        ("best", _BLUE, "best"),
        ("paper", _ORANGE, "the RAPPOR paper's default"),
    ):
        known = [(p.at, 100 * getattr(p, name)) for p in points if math.isfinite(getattr(p, name))]
        if known:
            axes.plot(*zip(*known, strict=True), color=color, label=label)
    axes.set_ylabel("smallest detectable share (%)")
    axes.grid(alpha=0.25, which="both")
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if high < _FEW_POWERS * low:  # too few powers of ten to read a scale by
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
