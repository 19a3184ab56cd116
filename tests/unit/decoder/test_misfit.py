"""Wrong parameters, maps and candidates draw a warning; right ones don't."""

from collections.abc import Callable

import numpy as np
import pytest

from hubbub.decoder import decode_rappor
from hubbub.inference import (
    ONCE,
    DecodingParams,
    FloatArray,
    Misfit,
    RepeatedReports,
    RepeatSource,
    bit_positions,
    decode,
    misfit,
    overlooked,
)
from hubbub.protocol import CohortCounts, RapporParams

PARAMS = DecodingParams(k=64, h=2, m=16, f=0.25, p=0.35, q=0.65)
NAMES = [f"name {number}" for number in range(20)]
SHARES = np.append(0.4, np.full(19, 0.6 / 19))
N = 50_000


def counts_of(
    rng: np.random.Generator,
    params: RapporParams = PARAMS,
    n_reports: int = N,
    names: list[str] = NAMES,
    shares: FloatArray = SHARES,
    times: int = 1,
) -> CohortCounts:
    """Draw clients and their reports, so many each."""
    filters = np.zeros((len(names), params.m, params.k), dtype=np.int64)
    np.put_along_axis(filters, bit_positions(names, params), 1, axis=2)
    clients = rng.multinomial(n_reports // times, np.full(params.m, 1 / params.m))
    held = np.stack([rng.multinomial(each, shares) for each in clients])
    true = np.einsum("cn,nck->ck", held, filters)
    absent = clients[:, None] - true
    permanent = rng.binomial(true, 1 - params.f1) + rng.binomial(absent, params.f0)
    ones = rng.binomial(permanent * times, params.q)
    zeros = rng.binomial((clients[:, None] - permanent) * times, params.p)
    return CohortCounts(clients * times, ones + zeros)


def with_other(**numbers: float) -> Callable[[CohortCounts], tuple[RapporParams, CohortCounts]]:
    own = {"k": 64, "h": 2, "m": 16, "f": 0.25, "p": 0.35, "q": 0.65} | numbers
    return lambda counts: (DecodingParams(**own), counts)  # type: ignore[arg-type]


def suspected(counts: CohortCounts, params: RapporParams, repeats: RepeatedReports = ONCE) -> bool:
    return misfit(counts, params, range(1, params.h + 1), repeats) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(with_other(p=0.65, q=0.35), id="p and q exchanged"),
        pytest.param(with_other(f=0.0), id="no f"),
        pytest.param(with_other(f=0.5), id="twice f"),
        pytest.param(with_other(p=0.3), id="p too low"),
        pytest.param(with_other(q=0.7), id="q too high"),
        pytest.param(with_other(h=1), id="too few hashes"),
        pytest.param(
            lambda counts: (PARAMS, CohortCounts(counts.reports * 2, counts.bits)), id="twice N"
        ),
        pytest.param(
            lambda counts: (PARAMS, CohortCounts(np.sort(counts.reports), counts.bits)),
            id="other cohorts' sizes",
        ),
    ],
)
def test_wrong_parameters_are_suspected(wrong):
    counts = counts_of(np.random.default_rng(1))
    sizes = np.linspace(0.5, 1, PARAMS.m)[::-1]  # cohorts that differ in size
    thinned = (counts.reports * sizes).astype(np.int64)
    bits = (counts.bits * (thinned / counts.reports)[:, None]).astype(np.int64)
    counts = CohortCounts(thinned, bits)
    assert not suspected(counts, PARAMS)
    params, given = wrong(counts)
    assert suspected(given, params)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda bits: bits[:, ::-1], id="bits reversed"),
        pytest.param(lambda bits: np.roll(bits, 1, axis=1), id="bits off by one"),
        pytest.param(
            lambda bits: bits.reshape(PARAMS.m, -1, 8)[:, :, ::-1].reshape(bits.shape),
            id="bits of bytes reversed",
        ),
        pytest.param(lambda bits: np.roll(bits, 1, axis=0), id="cohorts off by one"),
        pytest.param(
            lambda _: counts_of(np.random.default_rng(3), names=["else"] * 20).bits,
            id="another metric's",
        ),
    ],
)
def test_a_common_unlisted_string_is_reported(wrong):
    """Seeded: either side of the limit is tens of standard errors away."""
    counts = counts_of(np.random.default_rng(2))
    reports = np.full(PARAMS.m, N // PARAMS.m)
    counts = CohortCounts(reports, np.minimum(counts.bits, reports[:, None]))
    found = decode(counts, PARAMS, NAMES)
    assert overlooked(counts, PARAMS, ONCE) < found.constrained_share.sum()
    counts = CohortCounts(reports, np.minimum(wrong(counts.bits), reports[:, None]))
    found = decode(counts, PARAMS, NAMES)
    share = overlooked(counts, PARAMS, ONCE)
    assert share > max(found.summary.detection_limit, found.constrained_share.sum())


def test_right_parameters_are_rarely_suspected():
    """200 regimes, each suspected with a chance of at most 1e-6: 2e-4; seeded, and it passes.

    Ten thousand regimes gave none at 1e-6, 2 at 1e-3 and 42 at .05.
    """
    rng = np.random.default_rng(4)
    for _ in range(200):
        noise = rng.choice(4)
        of_noise = (
            {"f": 0.5, "p": 0.25, "q": 0.75},
            {"f": 0.25, "p": 0.8, "q": 0.3},
            {"f0": 0.1, "f1": 0.4, "p": 0.0, "q": 1.0},
            {"f": 0.0, "p": 0.1, "q": 0.6},
        )[noise]
        k, h, m = (int(rng.choice(each)) for each in ((8, 16, 64), (1, 2, 8), (1, 4, 64)))
        params = DecodingParams(k=k, h=h, m=m, **of_noise)
        names = [str(rng.integers(2**60)) for _ in range(int(rng.choice([1, 3, 30])))]
        shares = rng.dirichlet(np.full(len(names), 0.3))
        times, n_reports = int(rng.choice([1, 30])), int(10 ** rng.uniform(1.5, 5.5))
        counts = counts_of(rng, params, max(n_reports, 2 * times), names, shares, times)
        known = RepeatedReports(float(times), float(times), RepeatSource.GIVEN)
        assert not suspected(counts, params, known)
        assert not suspected(counts, params, RepeatedReports(source=RepeatSource.UNKNOWN))


def test_bits_that_all_or_no_clients_set_are_within_bounds():
    """With f1 = 0 a true bit is a permanent one for certain: no logarithm of 0 is taken."""
    params = DecodingParams(k=8, h=1, m=1, f0=0.3, f1=0.0, p=0.1, q=0.9)
    bits = np.full((1, 8), 100)
    counts = CohortCounts(np.array([1000]), bits)
    every_day = RepeatedReports(10.0, 10.0, RepeatSource.GIVEN)
    assert suspected(counts, params, every_day)
    every_bit = CohortCounts(np.array([1000]), np.full((1, 8), 1000))
    found = misfit(every_bit, params, range(1, 2), every_day)
    assert found is not None
    assert found.rate == 8.0


def test_a_bit_outside_of_its_range_is_named():
    params = DecodingParams(k=8, h=4, m=2, f=0.0, p=0.25, q=0.75)
    bits = np.full((2, 8), 4000)
    bits[1, 5] = 1000
    found = misfit(CohortCounts(np.array([10_000, 10_000]), bits), params, range(1, 5), ONCE)
    assert found == Misfit(0.1, 0.25, 0.75, cohort=1, bit=5)


COUNTS = (
    "10000,2497,4481,5519,4489,5517,2485,2488,2558\n10000,2513,5499,5576,4486,2545,2513,3538,3495\n"
)
MAP = 'a,3,5,10,11\n"b,c",2,4,16,12\n"say ""hi""",7,8,12,9\nNA,8,1,15,12\n'


def test_exchanged_p_and_q_of_a_params_file_are_reported(tmp_path):
    """A string of 60% got -47%, with an interval wholly below zero and without a warning."""
    (tmp_path / "counts.csv").write_text(COUNTS)
    (tmp_path / "map.csv").write_text(MAP)
    (tmp_path / "params.csv").write_text("k,h,m,p,q,f\n8,2,2,0.75,0.25,0\n")
    with pytest.warns(UserWarning, match=r"don't fit: a report has 3\.01 .* allow 5\.00 to 5\.50"):
        result = decode_rappor(
            counts=tmp_path / "counts.csv", params=tmp_path / "params.csv", map=tmp_path / "map.csv"
        )
    assert [each.code for each in result.findings if each.level] == ["misfit"]
    assert "p and q" in result.report().warnings[0] or "p, q and f" in result.report().warnings[0]
