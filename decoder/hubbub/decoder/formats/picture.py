"""Results as pictures of their curves, side by side.

matplotlib is an extra, so it is imported when something is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from hubbub.decoder.errors import PlanError
from hubbub.decoder.results.charts import Curves
from hubbub.decoder.results.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = ("#0b62a4", "#c2410c")
_FEW_POWERS = 50.0


def write_png(result: Result, file: BinaryIO) -> None:
    """Draw a result's curves as PNG.

    Raises
    ------
    PlanError
        If matplotlib isn't installed.
    """
    _draw(result.curves(), file, "png")


def write_svg(result: Result, file: BinaryIO) -> None:
    """Draw a result's curves as SVG; otherwise as `write_png`."""
    _draw(result.curves(), file, "svg")


def _draw(curves: tuple[Curves, ...], file: BinaryIO, form: str) -> None:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra that only pictures need
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise PlanError(
            f"a plot (.{form}) needs matplotlib: pip install 'hubbub[simulations]', "
            "or write .json or .csv"
        ) from error
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, each in zip(panels, curves, strict=True):
        _plot(axes, each)
    panels[-1].legend()
    figure.savefig(file, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)


def _plot(axes: Axes, curves: Curves) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter  # noqa: PLC0415 - as above

    axes.set_xscale("log")
    axes.set_yscale("log")
    for (label, points), color in zip(curves.lines, _COLORS, strict=True):
        if points:
            axes.plot(*zip(*points, strict=True), color=color, label=label)
    axes.set_ylabel(curves.y)
    axes.grid(alpha=0.25, which="both")
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if high < _FEW_POWERS * low:  # too few powers of ten to read a scale by
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.plot(*curves.point, "o", color=_COLORS[0])
    axes.set(xlabel=curves.x, title=curves.title)
