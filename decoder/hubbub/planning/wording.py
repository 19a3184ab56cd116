"""What plans print of any goal: shares, numbers of reports, entries for metrics.toml."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hubbub.planning.schedules import Schedule
from hubbub.protocol.params import RapporParams

_WIDTH = 100  # of a line of an entry, as of all our files


def is_one_time(params: RapporParams) -> bool:
    """Whether one of the two responses is left out, so that a second report must not be made."""
    return not (params.has_permanent and params.has_instantaneous)


def entry_text(
    params: RapporParams, name: str, metric_type: str, keys: Sequence[str] = ("k", "h", "m"),
    schedule: Schedule | None = None, *, noise: Mapping[str, object] | None = None,
    before: Sequence[str] = (), after: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return a metrics.toml entry, all of whose texts but the noise are to be filled in.

    `params`: the metric's parameters. `name`: the metric's name. `metric_type`: the registry's
    `type`. `keys`: which of k, h and m the type needs. `schedule`: when clients report; else it
    follows from the responses. `noise`: keys of the response, if it isn't unary. `before` and
    `after`: lines of the type's own, before the parameters and at the end.
    """
    noise = noise or params.noise
    if params.has_permanent and not params.has_instantaneous:
        noise = {key: value for key, value in noise.items() if key not in ("p", "q")}
    lines = [
        f"[metrics.{name}]",
        "version = 1",
        f'type = "{metric_type}"',
        'description = "..."',
        'owner = "..."',
        "expires = 2099-12-31",
        *_mode_lines(params, schedule),
        *before,
        *(f"{key} = {getattr(params, key)}" for key in keys),
        *(f"{key} = {_toml(value)}" for key, value in noise.items()),
        *after,
    ]
    return "\n".join(lines)


def _mode_lines(params: RapporParams, schedule: Schedule | None) -> list[str]:
    """Return what an entry says of when clients report, where it isn't the default."""
    if schedule is None:
        return ['mode = "one-time"'] if is_one_time(params) else []
    periods = [f"period_days = {schedule.period_days}", f"max_periods = {schedule.max_periods}"]
    if schedule.mode != "longitudinal":
        return [f'mode = "{schedule.mode}"', *(periods if schedule.mode == "once" else [])]
    memory = ['memory = "period"', *periods] if schedule.memory == "period" else []
    return [*memory, "reports_per_day = 1"]  # as `Schedule.reports_each` supposes


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def category_lines(size: int) -> list[str]:
    """Return an entry's lines with so many categories, which are numbers to be replaced."""
    lines, line = [f"categories = [  # {size} texts"], "   "
    for text in (f' "{i + 1}",' for i in range(size)):
        if len(line) + len(text) > _WIDTH:
            lines.append(line)
            line = "   "
        line += text
    return [*lines, line, "]"]


def reports_text(reports: float) -> str:
    """Return a number of reports, which may be infinite."""
    return f"{reports:,.0f}" if reports < math.inf else "never"


def share_text(share: float) -> str:
    """Return a share in percent, which may be infinite."""
    return f"{share:.3%}" if share < math.inf else "none"


def percents(*errors: float) -> str:
    """Return standard errors in percent."""
    return ", ".join(f"{100 * error:.3g}%" for error in errors)


def epsilon_text(epsilon: float) -> str:
    """Return an epsilon, which may be infinite."""
    return f"{epsilon:.4g}" if epsilon < math.inf else "not bounded"
