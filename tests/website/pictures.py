"""Pictures of the site, drawn as SVG from the formulas that they explain."""

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path

PEERS = Path(__file__).parents[2] / "docs/measured/data/peers.csv"
_WIDTH, _ROW, _LEFT = 640, 34, 190
_FULL = _WIDTH - _LEFT - 90


def _bars(title: str, rows: Sequence[tuple[str, float, str]], errors: Sequence[float] = ()) -> str:
    """Return horizontal bars, one per row: a label, a part of the whole width, a text behind it.

    errors: Standard errors of the parts, each drawn as a line about the bar's end.
    """
    height = _ROW * len(rows) + 8
    parts = [
        f'<svg role="img" aria-label="{title}" viewBox="0 0 {_WIDTH} {height}" class="bars">',
    ]
    for i, (label, part, text) in enumerate(rows):
        middle = _ROW * i + _ROW // 2 + 4
        error = errors[i] if errors else 0.0
        parts.append(
            f'<text x="{_LEFT - 8}" y="{middle + 5}" text-anchor="end">{label}</text>'
            f'<rect x="{_LEFT}" y="{middle - 10}" width="{part * _FULL:.1f}" height="20" '
            'fill="#00897b" opacity="0.75" />'
            f'<text x="{_LEFT + (part + error) * _FULL + 8:.1f}" y="{middle + 5}">{text}</text>'
        )
        if error:
            ends = [_LEFT + max(part + side * error, 0) * _FULL for side in (-1, 1)]
            parts.append(
                f'<line x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{middle}" y2="{middle}" '
                'stroke="currentColor" />'
            )
    return "".join(parts) + "</svg>\n"


def guess() -> str:
    """Return how often the best guess between two equally likely answers is right."""
    rows = []
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0):
        right = math.exp(epsilon) / (1 + math.exp(epsilon))
        rows.append((f"epsilon {epsilon:g}", right, f"{right:.2%}"))
    return _bars("How often the best guess between two answers is right", rows)


def noise() -> str:
    """Return the error of the share of a rare value at each epsilon, from 100,000 reports."""
    clients = 100_000
    errors = {
        epsilon: 2 * math.exp(epsilon / 2) / math.expm1(epsilon) / math.sqrt(clients)
        for epsilon in (0.5, 1.0, 2.0, 4.0)
    }
    most = max(errors.values())
    rows = [
        (f"epsilon {epsilon:g}", error / most, f"± {error:.2%}")
        for epsilon, error in errors.items()
    ]
    return _bars("Standard error of a rare value's share from 100,000 reports", rows)


def crowd() -> str:
    """Return the smallest share that is found, by number of reports.

    It stands out by 4.9 standard errors, which is certain enough among 100,000 candidates, and by
    1.3 more, so that it does so nine times in ten.
    """
    spread = 2 * math.exp(1.0) / math.expm1(2.0)
    shares = {n: 6.2 * spread / math.sqrt(n) for n in (10_000, 100_000, 1_000_000, 10_000_000)}
    most = max(shares.values())
    rows = [(f"{n:,} reports", share / most, f"{share:.2%}") for n, share in shares.items()]
    return _bars("Smallest share that is found among 100,000 candidates at epsilon 2", rows)


def _measured(cell: str) -> tuple[float, float]:
    """Return a cell's mean and standard error, 0 if it rests on a single run."""
    mean, _, error = cell.partition(" ± ")
    return float(mean), float(error or 0)


def peers() -> str:
    """Return which part of the names that decoders find among 1,000 candidates are false."""
    with PEERS.open(encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if row["reports of"] == "1,000 candidates"]
    rows, errors = [], []
    for row in found:
        right, _ = _measured(row["right"])
        false, error = _measured(row["false"])
        words = f"{false:.1f} ± {error:.1f} of {right + false:.1f} false"
        rows.append((row["decoder"], false / (right + false), words))
        errors.append(error / (right + false))
    return _bars(
        "False names among those found, of 1,000 candidates of which 100 are there", rows, errors
    )


PICTURES: dict[str, Callable[[], str]] = {
    "guess": guess, "noise": noise, "crowd": crowd, "peers": peers,
}  # fmt: skip
