"""Who is who on two shuffled days, and on seven? Cohorts and bits are all that is looked at.

Reports of one day are in any order, and each client's row is known to the score alone. Links
between two days are each report's most probable partner, by belief propagation over all matchings;
histories of more days are matched day by day, and then each day again to all the others. Nothing
promises that reports can't be linked: what is claimed is among how many clients most links are
right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from evaluation.attacks.outcome import Outcome
from factories import make_secret
from hubbub.client import Encoder, Metric, RapporParams, Registry
from hubbub.planning import linked_clients
from hubbub.protocol import BooleanType, EnumType, Value
from significance import BitArray, FloatArray, IntArray, unpack

_EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "metrics.toml"
_HOSTS = tuple(f"host-{i}.example" for i in range(2_000))
_TURNS, _KEPT = 60, 0.3  # of the messages; kept of the last turn, or they swing
_SWEEPS = 4
_LARGEST = 2_000  # clients in a cohort: their matrix takes 32 MB


class LinkedClients(NamedTuple):
    """Clients of made-up parameters: width None hashes, a number is that of categories."""

    params: RapporParams
    width: int | None
    clients: int


RANGE = (
    LinkedClients(RapporParams(424, 1, 96, 0.2, 0.0683, 0.5534), None, 96 * 100),
    LinkedClients(RapporParams(424, 1, 8, 0.2, 0.0683, 0.5534), None, 8 * 1_000),
    LinkedClients(RapporParams(128, 2, 64, 0.5, 0.25, 0.75), None, 64 * 100),
    LinkedClients(RapporParams(128, 2, 64, 0.5, 0.25, 0.75), None, 64 * 10),
    LinkedClients(RapporParams(264, 1, 64, 0.5, 0.1485, 0.62), None, 64 * 100),
    LinkedClients(RapporParams(256, 1, 64, 0.2, 0.2256, 0.533), None, 64 * 30),
    LinkedClients(RapporParams(128, 1, 64, 0.2, 0.05, 0.75), None, 64 * 100),
    LinkedClients(RapporParams(128, 1, 64, 0.05, 0.02, 0.9), None, 64 * 100),
    LinkedClients(RapporParams(64, 1, 64, 0.2, 0.02, 0.9), None, 64 * 100),
    LinkedClients(RapporParams(64, 4, 32, 0.5, 0.1, 0.9), None, 32 * 300),
    LinkedClients(RapporParams(32, 1, 64, 0.25, 0.2, 0.8), None, 64 * 100),
    LinkedClients(RapporParams(16, 1, 64, 0.5, 0.02, 0.98), 12, 64 * 100),
    LinkedClients(RapporParams(8, 1, 64, 0.5, 0.25, 0.75), 3, 64 * 100),
    LinkedClients(RapporParams(8, 1, 64, 0.25, 0.25, 0.75), 1, 64 * 100),
    LinkedClients(RapporParams(8, 1, 64, 0.2, 0.01, 0.99), 3, 64 * 100),
)


def attack(*, quick: bool) -> Iterator[Outcome]:
    """Link the days of the example's longitudinal metrics, then those of a range of parameters."""
    rng = np.random.default_rng(20)
    registry = Registry.load(_EXAMPLE)
    for metric in registry.values():
        if metric.reports_once:
            continue
        for clients in (1_000,) if quick else (1_000, 10_000):
            if clients <= metric.params.m * _LARGEST:
                days = reported_days(metric, clients, 2, rng)
                yield _outcome(metric.name, metric.params, metric.type.width, days, rng)
    homepage = registry["homepage"]
    week = reported_days(homepage, 1_000 if quick else 10_000, 7, rng)
    yield _histories("homepage", homepage.params, week, rng)
    if not quick:
        case = LinkedClients(homepage.params._replace(m=8), None, 8 * 1_000)
        name = "as homepage, as many in a cohort as of 96,000"
        yield _histories(name, case.params, simulated_days(case, rng, 7), rng)
    for case in RANGE[:: 4 if quick else 1]:
        k, h, m = case.params[:3]
        name = f"k={k} h={h} m={m} f, p, q={','.join(map(str, case.params.noise.values()))}"
        yield _outcome(name, case.params, case.width, simulated_days(case, rng), rng)


class Days(NamedTuple):
    """What each client reported."""

    cohorts: IntArray  # shape (n,)
    bits: BitArray  # shape (days, n, k)
    # shape (k,): share of clients for whom a bit is a true one, as the attacker takes it to be
    true: FloatArray


def reported_days(metric: Metric, clients: int, days: int, rng: np.random.Generator) -> Days:
    """Let real clients report one value each, day after day; within one period, if there are."""
    cohorts, reports, values = [], bytearray(), _values(metric)
    for client, number in enumerate(rng.integers(len(values), size=clients)):
        encoder, value = Encoder(metric, make_secret(f"linked {client}")), values[number]
        if metric.memory == "period":
            response = encoder.fresh_response(value, rng.bytes)
        else:
            response = encoder.permanent_response(encoder.true_bits(value))
        cohorts.append(response.cohort)
        for _ in range(days):
            reports += encoder.report(response, rng.bytes).bits
    bits = unpack(reports, metric.params.k).reshape(clients, days, -1).transpose(1, 0, 2)
    return Days(np.array(cohorts), bits, _true_rates(metric.params, metric.type.width))


def simulated_days(case: LinkedClients, rng: np.random.Generator, days: int = 2) -> Days:
    """Draw days of clients whose values are spread evenly, as many in each cohort."""
    params, width, clients = case
    permanent = np.zeros((clients, params.k), dtype=bool)
    if width is None:
        hashes = rng.integers(params.k, size=(clients, params.h))
        permanent[np.arange(clients)[:, None], hashes] = True
    else:
        held = rng.integers(max(width, 2), size=clients)
        permanent[np.flatnonzero(held < width), held[held < width]] = True
    permanent ^= rng.random(permanent.shape) < params.f / 2
    rates = np.where(permanent, params.q, params.p)
    bits = (rng.random((days, *rates.shape)) < rates).astype(np.uint8)
    return Days(np.arange(clients) % params.m, bits, _true_rates(params, width))


def right_share(days: Days, params: RapporParams, rng: np.random.Generator) -> float:
    """Return the share of reports of the first day that are linked to their client's second."""
    right = 0
    for cohort in np.unique(days.cohorts):
        first, second = days.bits[:, days.cohorts == cohort]
        order = rng.permutation(len(second))
        ratios = log_ratios(first.astype(np.int64), 1, second[order], days.true, params)
        right += int((order[best_links(ratios)] == np.arange(len(first))).sum())
    return right / len(days.cohorts)


def rebuilt(
    bits: BitArray, true: FloatArray, params: RapporParams, rng: np.random.Generator
) -> int:
    """Return how many clients of a cohort have their reports of all days put together, exactly.

    bits: shape (days, n, k)
    """
    n_days, n = bits.shape[:2]
    orders = [rng.permutation(n) for _ in range(n_days)]
    shuffled = [day[order] for day, order in zip(bits, orders, strict=True)]
    found = np.full((n_days, n), -1)
    ones = np.zeros(bits.shape[1:], dtype=np.int64)
    for turn in range(1 + _SWEEPS):
        for day, reports in enumerate(shuffled):
            if turn:
                ones -= reports[found[day]]
            others = day if turn == 0 else n_days - 1
            ratios = log_ratios(ones, others, reports, true, params)
            found[day] = optimize.linear_sum_assignment(ratios, maximize=True)[1]
            ones += reports[found[day]]
    people = np.array([order[of_day] for order, of_day in zip(orders, found, strict=True)])
    return int((people == people[0]).all(axis=0).sum())


def log_ratios(
    ones: IntArray, n: int, reports: BitArray, true: FloatArray, params: RapporParams
) -> FloatArray:
    """Return how much likelier each report is beside n linked ones than by itself, as logarithms.

    ones: shape (a, k): How many of the n reports have each bit set.
    reports: shape (b, k)
    true: shape (k,)
    """
    prior = params.f / 2 + true * (1 - params.f)
    with np.errstate(divide="ignore"):
        of_one = special.xlogy(ones, params.q) + special.xlog1py(n - ones, -params.q)
        of_zero = special.xlogy(ones, params.p) + special.xlog1py(n - ones, -params.p)
    posterior = special.expit(special.logit(prior) + of_one - of_zero)
    linked = posterior * params.q + (1 - posterior) * params.p
    alone = prior * params.q + (1 - prior) * params.p
    if_one, if_zero = np.log(linked / alone), np.log((1 - linked) / (1 - alone))
    return np.asarray(if_zero.sum(axis=1)[:, None] + (if_one - if_zero) @ reports.T.astype(float))


def best_links(ratios: FloatArray) -> IntArray:
    """Return the most probable partner of each row, if rows and columns match one to one.

    A message is the log odds that one side would be taken by others; the messages of a complete
    graph settle in some dozens of turns.
    """
    down, up = np.zeros_like(ratios), np.zeros_like(ratios)
    for _ in range(_TURNS):
        up = (1 - _KEPT) * _without_itself(ratios + down, 1) + _KEPT * up
        down = (1 - _KEPT) * _without_itself(ratios + up, 0) + _KEPT * down
    return np.asarray((ratios + up + down).argmax(axis=1))


def _without_itself(values: FloatArray, axis: int) -> FloatArray:
    total = special.logsumexp(values, axis=axis, keepdims=True)
    part = np.minimum(values - total, -1e-12)  # one alone would leave nothing
    return np.asarray(-(total + np.log1p(-np.exp(part))))


def _outcome(
    name: str,
    params: RapporParams,
    width: int | None,
    days: Days,
    rng: np.random.Generator,
) -> Outcome:
    clients, wrong = len(days.cohorts), 1 - right_share(days, params, rng)
    stated = clients <= linked_clients(params, width)
    what = f"{name}: wrong links of two days, {clients:,} clients"
    return Outcome(what, wrong, 0.5 if stated else 1.0)


def _histories(name: str, params: RapporParams, days: Days, rng: np.random.Generator) -> Outcome:
    found = sum(
        rebuilt(days.bits[:, days.cohorts == cohort], days.true, params, rng)
        for cohort in np.unique(days.cohorts)
    )
    clients = len(days.cohorts)
    what = f"{name}: share of seven-day histories rebuilt, {clients:,} clients"
    return Outcome(what, found / clients, 1.0)


def _values(metric: Metric) -> Sequence[Value]:
    if isinstance(metric.type, BooleanType):
        return (False, True)
    return metric.type.categories if isinstance(metric.type, EnumType) else _HOSTS


def _true_rates(params: RapporParams, width: int | None) -> FloatArray:
    if width is None:
        return np.full(params.k, 1 - (1 - 1 / params.k) ** params.h)
    return np.where(np.arange(params.k) < width, 1 / max(width, 2), 0.0)
