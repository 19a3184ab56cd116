"""Parameters that people can remember: f, p and q on a coarse grid, within a budget."""

from __future__ import annotations

import itertools
import math

from hubbub.client.params import RapporParams
from hubbub.decoder.planning.information import bit_rate
from hubbub.decoder.planning.limits import coin_variance
from hubbub.decoder.planning.noise import Budget, permanent_noise

_MOST = 12


def round_params(k: int, h: int, m: int, budget: Budget, steps: int) -> list[RapporParams]:
    """Return the least noisy parameters within a budget whose f, p and q are multiples of 1/steps.

    Parameters
    ----------
    k, h, m : int
    budget : Budget
    steps : int
        Such as 20: multiples of .05.

    Returns
    -------
    list of RapporParams
        At most twelve, those with the least variance first.
    """
    least = math.ceil(permanent_noise(h, budget.permanent) * steps - 1e-9)
    found = []
    for up, low, high in itertools.product((least, least + 1), range(steps + 1), range(steps + 1)):
        if low >= high or up >= steps or (up == 0) != (budget.permanent == math.inf):
            continue
        f, p, q = up / steps, low / steps, high / steps
        p_star, q_star = p + f / 2 * (q - p), q - f / 2 * (q - p)
        if p_star <= 0 or q_star >= 1:
            continue
        spent = h * math.log(q_star * (1 - p_star) / (p_star * (1 - q_star)))
        if 0.5 * budget.report <= spent <= budget.report:
            found.append(RapporParams(k, h, m, f, p, q))
    found.sort(key=lambda params: coin_variance(params, bit_rate(k, h)))
    return [
        params
        for params in found[:_MOST]
        if params.epsilon_permanent <= budget.permanent and params.epsilon_report <= budget.report
    ]
