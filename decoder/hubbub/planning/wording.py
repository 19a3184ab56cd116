"""What plans print of any goal: shares, numbers of reports, entries for metrics.toml."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hubbub.protocol.params import RapporParams


def is_one_time(params: RapporParams) -> bool:
    """Whether one of the two responses is left out, so that a second report must not be made."""
    return not (params.has_permanent and params.has_instantaneous)


def entry_text(
    params: RapporParams, name: str, metric_type: str, keys: Sequence[str] = ("k", "h", "m"),
    *, before: Sequence[str] = (), after: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return a metrics.toml entry, all of whose texts but the noise are to be filled in.

    Parameters
    ----------
    params : RapporParams
        The metric's parameters.
    name : str
        The metric's name.
    metric_type : str
        The registry's `type`.
    keys : sequence of str
        Which of k, h and m the type needs.
    before, after : sequence of str
        Lines of the type's own, before the parameters and at the end.
    """
    noise = params.noise
    one_time = is_one_time(params)
    if one_time and params.f:
        del noise["p"], noise["q"]
    lines = [
        f"[metrics.{name}]",
        "version = 1",
        f'type = "{metric_type}"',
        'description = "..."',
        'owner = "..."',
        "expires = 2099-12-31",
        *(['mode = "one-time"'] if one_time else []),
        *before,
        *(f"{key} = {getattr(params, key)}" for key in keys),
        *(f"{key} = {value!r}" for key, value in noise.items()),
        *after,
    ]
    return "\n".join(lines)


def reports_text(reports: float) -> str:
    """Return a number of reports, which may be infinite."""
    return f"{reports:,.0f}" if reports < math.inf else "never"


def share_text(share: float) -> str:
    """Return a share in percent, which may be infinite."""
    return f"{share:.3%}" if share < math.inf else "none"


def percents(*errors: float) -> str:
    """Return standard errors in percent."""
    return ", ".join(f"{100 * error:.3g}%" for error in errors)
