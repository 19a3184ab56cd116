"""Decision rules whose chance of a false alarm is known: every one takes it as `alarm`.

Where a rule leans on the normal approximation its docstring says so; at the sample sizes used here
the approximation's own error is far below the room that the thresholds leave.
"""

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BitArray = npt.NDArray[np.uint8]
ALARM = 1e-6


def z_limit(n_tests: int = 1, alarm: float = ALARM) -> float:
    """Return |z| that none of n standard normals exceeds, but with probability `alarm`."""
    return float(stats.norm.isf(alarm / n_tests / 2))


def t_limit(runs: int, n_tests: int = 1, alarm: float = ALARM) -> float:
    """Return |t| that none of n means over its standard error exceeds, but with this probability.

    The standard error is that of so few runs, too: Student's t (normal approximation of a run).
    """
    return float(stats.t.isf(alarm / n_tests / 2, runs - 1))


def frequency_z(ones: npt.ArrayLike, n: npt.ArrayLike, expected: npt.ArrayLike) -> FloatArray:
    """Return (observed - expected) / sd of binomial frequencies (normal approximation)."""
    chance = np.asarray(expected, dtype=np.float64)
    count = np.asarray(n, dtype=np.float64)
    deviation = np.asarray(ones) - count * chance
    return np.asarray(deviation / np.sqrt(count * chance * (1 - chance)))


def rate_z(bits: BitArray, expected: FloatArray) -> FloatArray:
    """Return a z-score for each column's ones, and for those of all columns with the same chance.

    Together columns show a bias that is too small for any one of them, if they all have it.

    bits: shape (n, k): Independent, or the scores of columns together are off.
    expected: shape (k,)
    """
    ones, n = bits.sum(axis=0), len(bits)
    chances, group = np.unique(expected, return_inverse=True)
    together, columns = np.bincount(group, weights=ones), np.bincount(group)
    pooled = frequency_z(together, n * columns, chances)
    return np.concatenate([frequency_z(ones, n, expected), pooled])


def pair_z(bits: BitArray, expected: FloatArray) -> FloatArray:
    """Return a z-score for each pair of columns: their covariance about the *known* means.

    bits: shape (n, k)
    expected: shape (k,)
    Returns: Under independence the products of centred bits have mean 0 and variance v_i v_j
    exactly; normal approximation of their sum.
    """
    n, ones = len(bits), bits.astype(np.float32)
    assert n < 1 << 24, "counts of pairs would be rounded"
    pairs, each = (ones.T @ ones).astype(np.float64), bits.sum(axis=0)
    products = pairs - np.outer(each, expected) - np.outer(expected, each - n * expected)
    variances = expected * (1 - expected)
    scaled = products / np.sqrt(n * np.outer(variances, variances))
    return np.asarray(scaled[np.triu_indices(len(expected), 1)])


def chi_squared_p(observed: FloatArray | IntArray, expected: FloatArray) -> float:
    """Return Pearson's p-value of category counts whose probabilities are known."""
    return float(stats.chisquare(observed, expected).pvalue)


def frequency_bounds(ones: int, n: int, alarm: float) -> tuple[float, float]:
    """Return an exact (Clopper-Pearson) interval that misses with at most `alarm` a side."""
    low = stats.beta.ppf(alarm, ones, n - ones + 1) if ones else 0.0
    high = stats.beta.isf(alarm, ones + 1, n - ones) if ones < n else 1.0
    return float(low), float(high)


def unpack(bits: bytes | bytearray, k: int) -> BitArray:
    """Return packed reports as 0 and 1, shape (n, k)."""
    packed = np.frombuffer(bytes(bits), dtype=np.uint8).reshape(-1, k // 8)
    return np.unpackbits(packed, axis=1, bitorder="little")
