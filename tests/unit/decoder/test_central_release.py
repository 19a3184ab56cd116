"""Releases of counts as files: what can be blended is read, everything else is named."""

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from hubbub.decoder.central import read_release
from hubbub.inference.blending.noise import CountNoise, cutoff_sign, log_p_value
from hubbub.inference.errors import InputError
from hubbub.release.mechanisms import histograms
from unit.decoder.releases import NOISE, RATIO, laplace_noise, release_document, write_release

COUNTS = {"example.com": 900.0, "e\u0301.example": -2.0, "": 300.0}


def test_a_release_is_read_with_its_keys_in_their_normal_form(tmp_path):
    found = read_release(write_release(tmp_path / "release.json", COUNTS))
    assert found.keys == ("example.com", "\u00e9.example", "")
    assert found.counts.tolist() == [900.0, -2.0, 300.0]
    assert found.users == 1198
    assert found.noise == NOISE
    assert found.name == "release.json"


@pytest.mark.parametrize(
    ("summary", "complaint"),
    [
        ({"query": "mean"}, "summary.query = \"mean\": must be a release of counts by key"),
        ({"mechanism": "thresholded discrete Laplace"}, "its counts are too high"),
        ({"mechanism": "exponential"}, "must be one that adds discrete Laplace or discrete Gauss"),
        ({"mechanism": None}, "summary.mechanism = null: must be the name of the mechanism"),
        ({"rows_per_user": 3}, "summary.rows_per_user = 3: must be 1, so that counts are numbers"),
        ({"total": None}, "summary.total = null: must be the noisy number of users"),
        ({"total": "many"}, "summary.total = \"many\": must be a number of at least 1"),
        ({"total": 12, "total_variance": 4}, "must be at least 10 standard deviations"),
        ({"total_variance": -1}, "summary.total_variance = -1: must be a number of at least 0"),
        ({"noise_variance": 0}, "summary.noise_variance = 0: must be a number above 0"),
        ({"noise_variance": True}, "summary.noise_variance = true: must be a number above 0"),
        ({"noise_variance": math.nan}, "summary.noise_variance = NaN: must be a number above 0"),
        ({"epsilon": 0}, "summary.epsilon = 0: must be a number above 0"),
        ({"delta": math.inf}, "summary.delta = Infinity: must be a number of at least 0"),
    ],
)  # fmt: skip
def test_a_summary_that_cannot_be_blended_is_refused_by_its_field(tmp_path, summary, complaint):
    path = write_release(tmp_path / "release.json", COUNTS, **summary)
    with pytest.raises(InputError) as caught:
        read_release(path)
    assert str(caught.value).startswith(f"{path}: summary.{next(iter(summary))} = ")
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "rows: must be a list of at least one row"),
        ({"a": 1}, "rows: must be a list of at least one row"),
        (["a"], "rows[0]: must be an object with `key` and `value`"),
        ([{"key": 7, "value": 1}], "rows[0].key = 7: must be a string"),
        ([{"key": "a", "value": 1}, {"key": "b"}], "rows[1].value = null: must be a number"),
        ([{"key": "a", "value": 10**400}], "must be a number"),
        (
            [{"key": "\u00e9", "value": 1}, {"key": "e\u0301", "value": 1}],
            "stands in rows[0] as well (in Unicode NFC); must occur once",
        ),
    ],
)
def test_rows_that_are_no_counts_are_refused_by_their_place(tmp_path, rows, complaint):
    path = tmp_path / "release.json"
    path.write_text(json.dumps(release_document(COUNTS) | {"rows": rows}), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_release(path)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"key,value\n", "must be the JSON that hubbub-release writes"),
        (b"[" * 100_000, "must be the JSON that hubbub-release writes"),
        (b"\xff", "can't be read"),
        (b"[]", "must be a JSON object with `summary` and `rows`"),
        (b'{"rows": []}', "summary: must be an object"),
    ],
)
def test_other_files_are_refused(tmp_path, content, complaint):
    path = tmp_path / "release.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        read_release(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.json: can't be read"):
        read_release(tmp_path / "none.json")


@given(st.floats(0.05, 5.0))
def test_the_scale_of_the_noise_follows_from_its_variance(epsilon):
    a = math.exp(-epsilon)
    assert CountNoise(2 * a / (1 - a) ** 2, laplace=True).scale == pytest.approx(1 / epsilon)


@given(st.integers(-40, 200))
def test_tails_are_those_of_the_discrete_distribution(count):
    outcomes = np.arange(count, count + 400)
    chances = (1 - RATIO) / (1 + RATIO) * RATIO ** np.abs(outcomes)
    assert NOISE.log_tail(count) == pytest.approx(math.log(chances.sum()), abs=1e-9)


@pytest.mark.parametrize("gain", [0.01, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("laplace", [True, False])
def test_p_values_are_uniform_if_nobody_has_a_string(gain, laplace):
    """Kolmogorov-Smirnov's bound for 20,000 draws; P(false alarm) <= 1e-6 by DKW's inequality."""
    rng, n = np.random.default_rng([3, int(100 * gain), laplace]), 20_000
    noise = CountNoise(NOISE.variance, laplace)
    counts = laplace_noise(rng, n) if laplace else rng.normal(0, noise.variance**0.5, n)
    z = rng.normal(size=n)
    p = np.sort(np.exp([log_p_value(*pair, gain, noise) for pair in zip(z, counts, strict=True)]))
    off = np.abs(p - (np.arange(n) + 0.5) / n).max()
    assert off < math.sqrt(math.log(2 / 1e-6) / (2 * n)) + 0.5 / n


def test_a_count_alone_has_its_own_tail_as_p_value():
    assert log_p_value(0.0, 9.0, math.inf, NOISE) == NOISE.log_tail(9.0)


def test_with_little_gain_the_local_sign_decides():
    expected = float(special.log_ndtr(-4.0))
    assert log_p_value(4.0, 3.0, 1e-7, NOISE) == pytest.approx(expected, rel=1e-5)


def test_a_sign_without_bounds_has_no_chance_by_noise():
    assert log_p_value(math.inf, 3.0, 0.5, NOISE) == -math.inf
    assert log_p_value(2.0, 1e6, 0.5, NOISE) < -1e3


@given(st.floats(-30, -0.7), st.sampled_from([0.02, 0.5, 3.0, math.inf]))
def test_the_cutoff_is_where_the_p_value_crosses_it(log_p, gain):
    sign = cutoff_sign(log_p, gain, NOISE)
    own = NOISE.log_tail if math.isinf(gain) else lambda at: log_p_value(at, 0.0, gain, NOISE)
    assert own(sign) <= log_p
    assert own(0.999 * sign - 1e-3) >= log_p


def test_the_names_of_the_curators_own_mechanisms_tell_which_can_be_blended(tmp_path):
    budget: dict[str, Any] = {"rows_per_user": 1, "epsilon": Fraction(1), "delta": Fraction("1e-6")}
    halves = histograms.found_and_counted(**budget)
    public = histograms.histogram(["a"], **budget)
    for mechanism in (halves, public):
        path = write_release(tmp_path / "release.json", COUNTS, mechanism=mechanism.name)
        assert read_release(path).noise.laplace is (mechanism is halves)
    large = histograms.thresholded_histogram(**budget)
    with pytest.raises(InputError, match="its counts are too high"):
        read_release(write_release(tmp_path / "release.json", COUNTS, mechanism=large.name))
