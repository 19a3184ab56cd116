"""Pictures of results, for eyes rather than programs."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hubbub.decoder.arrays import BoolArray, FloatArray

_BLUE, _ORANGE, _GREY = "#0b62a4", "#c2410c", "#9a9a9a"
_LABELS = 12


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
    figure.savefig(path, dpi=150)


def _label_largest(
    axes: Axes, strings: tuple[str, ...], truth: FloatArray, share: FloatArray, detected: BoolArray
) -> None:
    found = detected.nonzero()[0]
    for index in found[(-share[found]).argsort()][:_LABELS]:
        axes.annotate(strings[index], (truth[index], share[index]), xytext=(6, -10),
                      textcoords="offset points", fontsize=8)  # fmt: skip
