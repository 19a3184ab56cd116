"""Fisher information of a string, against the enumeration of all reports of small filters."""

import itertools

import numpy as np
import pytest

from hubbub.planning import Information

P_STAR, Q_STAR = 0.3, 0.6


def law(filter_bits: frozenset[int], k: int) -> list[float]:
    """Return the probability of each of the 2^k reports."""
    rates = [Q_STAR if j in filter_bits else P_STAR for j in range(k)]
    return [
        float(np.prod([r if bit else 1 - r for r, bit in zip(rates, report, strict=True)]))
        for report in itertools.product((0, 1), repeat=k)
    ]


def laws(k: int, h: int) -> np.ndarray:
    """Return a row of report probabilities for each outcome of the hashes, all equally likely."""
    return np.array([law(frozenset(hit), k) for hit in itertools.product(range(k), repeat=h)])


@pytest.mark.parametrize(("k", "h"), [(3, 1), (4, 2), (3, 3), (6, 2)])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_information_is_that_of_all_reports(k, h, share):
    strings = laws(k, h)
    random = strings.mean(axis=0)
    mixture = (1 - share) * random + share * strings
    expected = ((strings - random) ** 2 / mixture).sum(axis=1).mean()
    assert Information.of_string(k, h, P_STAR, Q_STAR).at(share) == pytest.approx(expected)


@pytest.mark.parametrize(("k", "h"), [(3, 1), (4, 2), (3, 3)])
def test_overlap_is_the_variance_of_the_score_that_another_string_adds(k, h):
    strings = laws(k, h)
    scores = strings / strings.mean(axis=0) - 1
    expected = (strings @ scores.T).var()
    assert Information.of_string(k, h, P_STAR, Q_STAR).overlap == pytest.approx(expected)


def test_skewness_is_that_of_the_score():
    strings = laws(4, 2)
    random = strings.mean(axis=0)
    scores = strings / random - 1
    second, third = ((scores**power @ random).mean() for power in (2, 3))
    found = Information.of_string(4, 2, P_STAR, Q_STAR).skewness
    assert found == pytest.approx(third / second**1.5)
