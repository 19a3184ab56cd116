"""Pictures of results, for eyes rather than programs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hubbub.decoder.arrays import BoolArray, FloatArray
from hubbub.decoder.results.wording import visible
from hubbub.simulations.experiments.bands import Band

_BLUE, _ORANGE, _GREY = "#0b62a4", "#c2410c", "#9a9a9a"
_COLORS = (_BLUE, _ORANGE, "#2e7d32", "#6a1b9a", _GREY)
_LABELS = 12


@dataclass(frozen=True, slots=True)
class Line:
    """Attributes: a label; x, y and y's standard errors, equally many numbers."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    std_error: Sequence[float]


@dataclass(frozen=True, slots=True)
class Panel:
    """Attributes: title, labels of the axes, the lines, and whether both axes are logarithmic."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    logarithmic: bool = False


def plot_estimates(
    path: Path,
    strings: tuple[str, ...],
    truth: FloatArray,
    share: FloatArray,
    half_width: FloatArray,
    detected: BoolArray,
    title: str,
) -> None:
    """Draw truth against estimate: detected strings with error bars, other present ones as dots.

    Parameters
    ----------
    path : Path
        A .png file.
    strings : tuple of str, length n
    truth, share, half_width : float64 array, shape (n,)
        Shares; half widths of the 95% intervals.
    detected : bool array, shape (n,)
    title : str
    """
    figure = Figure(figsize=(9, 7), layout="constrained")
    axes = figure.add_subplot()
    truth, share, half_width = 100 * truth, 100 * share, 100 * half_width
    others = ~detected & (truth > 0)
    axes.plot(truth[others], share[others], ".", color=_GREY, markersize=3, alpha=0.5,
              label="held by someone, not detected")  # fmt: skip
    for chosen, color, label in (
        (detected & (truth > 0), _BLUE, "detected, with 95% interval"),
        (detected & (truth == 0), _ORANGE, "detected, but held by nobody"),
    ):
        if chosen.any():
            axes.errorbar(truth[chosen], share[chosen], half_width[chosen], fmt="o", color=color,
                          markersize=4, linewidth=1, capsize=2, label=label)  # fmt: skip
    top = 1.08 * max(float(truth.max()), float(share[detected].max(initial=0.0)), 0.1)
    axes.plot([0, top], [0, top], color="black", linewidth=0.8, label="estimate = truth")
    _label_largest(axes, strings, truth, share, detected)
    axes.set(xlabel="true share of the reports (%)", ylabel="estimated share (%)", title=title)
    axes.set_xlim(-0.02 * top, top)
    axes.grid(alpha=0.25)
    axes.legend(loc="upper left")
    with warnings.catch_warnings():
        # Strings may be of any script; a letter that the font lacks is shown as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(path, dpi=150)


def _label_largest(
    axes: Axes, strings: tuple[str, ...], truth: FloatArray, share: FloatArray, detected: BoolArray
) -> None:
    found = detected.nonzero()[0]
    for index in found[(-share[found]).argsort()][:_LABELS]:
        axes.annotate(visible(strings[index]), (truth[index], share[index]), xytext=(6, -10),
                      textcoords="offset points", fontsize=8, parse_math=False)  # fmt: skip


def plot_bands(path: Path, rows: Sequence[Band]) -> None:
    """Draw recall over true shares, and precision over estimated ones, a pair of bars a decade."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(rows))
    for offset, values, color, label in (
        (-0.2, [band.recall for band in rows], _BLUE, "recall: of the strings that common, found"),
        (0.2, [band.precision for band in rows], _ORANGE,
         "precision: of those reported as that common, true"),
    ):  # fmt: skip
        axes.bar([place + offset for place in places], values, 0.4, color=color, label=label)
    axes.set_xticks(list(places), [f"≤ {100 * band.high:g}%" for band in rows])
    axes.set(ylim=(0, 1.25), xlabel="share of the reports", ylabel="share of the strings")
    axes.grid(alpha=0.25, axis="y")
    axes.legend(loc="upper left")
    figure.savefig(path, dpi=110)


def plot_p_values(path: Path, p_values: FloatArray) -> None:
    """Draw the histogram of absent candidates' p-values, even if they are what they should be.

    Parameters
    ----------
    path : Path
    p_values : float64 array, shape (n,)
        At least one.
    """
    figure = Figure(figsize=(8, 3.5), layout="constrained")
    axes = figure.add_subplot()
    bins = 20
    axes.hist(p_values, bins=bins, range=(0, 1), color=_BLUE)
    axes.axhline(len(p_values) / bins, color=_ORANGE, label="even")
    axes.set(xlabel="p-value of strings that nobody holds", ylabel="strings", xlim=(0, 1))
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=110)


def plot_panels(path: Path, panels: Sequence[Panel]) -> None:
    """Draw panels side by side: points with error bars, each series joined by a line.

    Parameters
    ----------
    path : Path
        A .png file.
    panels : sequence of Panel
    """
    figure = Figure(figsize=(max(8, 4.2 * len(panels)), 4.5), layout="constrained")
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        styles = zip(panel.lines, cycle(_COLORS), cycle(("-", "--", ":")), strict=False)
        for line, color, style in styles:
            axes.errorbar(line.x, line.y, line.std_error, color=color, linestyle=style, marker="o",
                          markersize=3, linewidth=1, capsize=2, label=line.label)  # fmt: skip
        if panel.logarithmic:
            axes.set(xscale="log", yscale="log")
        axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
        axes.grid(alpha=0.25)
        axes.legend()
    figure.savefig(path, dpi=110)
