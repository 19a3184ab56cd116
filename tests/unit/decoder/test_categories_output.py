"""Results of enums, booleans and ordinals as files and on a terminal."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from evaluation.studies.categories import LOOSE, CategoryCase, boolean, make_case, ordinal
from factories import make_params
from hubbub.inference import CategoryDecoding, decode_categories
from hubbub.protocol import EnumType
from hubbub.reporting import COLUMNS, categories_estimates
from unit.decoder.rendered import csv_of, html_of, json_of, shown

COMMON = ("category", *COLUMNS[1:9], "unbiased", "p_value", "q_value", "detected")
NAMES = ("light", 'da"rk,', "two\nlines", "\x1b[31mred", "none")
ENUM = make_case(EnumType(NAMES), np.array([0.5, 0.2, 0.2, 0.1, 0]), 20_000, LOOSE)
BACKWARDS = make_params(8, 1, 1, f=0.2, p=0.75, q=0.05)
THREE_OF_FIVE = make_case(
    EnumType(tuple("abcde")), np.array([1, 1, 1, 0, 0]) / 3, 20_000, BACKWARDS
)
ORDINAL = ordinal(12, 20_000, LOOSE)
CASES = pytest.mark.parametrize(
    "case", [ENUM, boolean(0.3, 20_000, LOOSE), ORDINAL], ids=lambda case: case.name
)


def decoded(case: CategoryCase, seed: int = 7) -> CategoryDecoding:
    return decode_categories(case.draw(np.random.default_rng(seed)), case.metric)


def table_of(decoding: CategoryDecoding, *, limit: int = 40, detected_only: bool = False) -> str:
    return shown(
        categories_estimates(decoding, detected_only=detected_only, limit=limit), width=120
    )


def to_csv(decoding: CategoryDecoding, *, detected_only: bool = False) -> str:
    return csv_of(categories_estimates(decoding, detected_only=detected_only))


def to_json(decoding: CategoryDecoding, *, detected_only: bool = False) -> str:
    return json_of(categories_estimates(decoding, detected_only=detected_only))


@CASES
def test_csv_has_a_row_a_category_in_the_registrys_order(case):
    decoding = decoded(case)
    lines = list(csv.DictReader(io.StringIO(to_csv(decoding), newline="")))
    assert [line["category"] for line in lines] == list(decoding.categories)
    assert tuple(lines[0])[: len(COMMON)] == COMMON
    shares = np.array([float(line["proportion"]) for line in lines])
    assert shares.sum() == pytest.approx(1)
    np.testing.assert_allclose(shares, case.shares, atol=0.05)
    for line in lines:
        assert float(line["count"]) == pytest.approx(20_000 * float(line["proportion"]))
        assert 0 <= float(line["prop_low"]) < float(line["prop_high"]) <= 1


def test_a_boolean_is_one_row_for_people_and_two_in_files():
    result = categories_estimates(decoded(boolean(0.3, 20_000, LOOSE)))
    rows = [line for line in shown(result).splitlines() if line.startswith("│")]
    assert [row.split()[1] for row in rows] == ["true"]
    assert len(list(csv.DictReader(io.StringIO(csv_of(result))))) == 2
    page = html_of(result)
    main, folded = page.split("For statisticians")
    assert ">false<" not in main
    assert "from 20,000 reports" in main
    assert ">false<" in folded


def test_category_names_survive_csv_and_dont_command_the_terminal():
    decoding = decoded(ENUM)
    lines = csv.reader(io.StringIO(to_csv(decoding), newline=""))
    assert tuple(line[0] for line in lines)[1:] == NAMES
    text = table_of(decoding)
    assert "\\x1b[31mred" in text
    assert "\x1b" not in text


def test_enum_states_how_far_others_are_behind_the_largest():
    rows = json.loads(to_json(decoded(ENUM)))["rows"]
    assert rows[0]["behind"] is None
    assert rows[1]["behind"] == pytest.approx(rows[0]["unbiased"] - rows[1]["unbiased"])
    together = np.hypot(rows[0]["prop_std_error"], rows[1]["prop_std_error"])
    assert rows[1]["behind_std_error"] > together  # one's gain is the other's loss


def test_an_undetermined_quantile_is_named_on_page_and_terminal():
    decoding = decoded(ORDINAL)
    assert decoding.ordinal is not None
    first, *others = decoding.ordinal.quantiles
    unknown = replace(first, low=-math.inf, high=math.inf)
    ordinal_ = replace(decoding.ordinal, quantiles=(unknown, *others))
    result = categories_estimates(replace(decoding, ordinal=ordinal_))
    assert ">anything</td>" in html_of(result)
    assert "anything" in shown(result)


def test_table_of_an_ordinal_keeps_the_order_of_buckets_when_it_is_cut():
    text = table_of(decoded(ORDINAL), limit=3)
    assert text.index("[40, 50)") < text.index("[50, 60)") < text.index("[60, 70)")
    assert "and 9 more" in text
    assert "< 10" not in text


@pytest.mark.parametrize("case", [ENUM, THREE_OF_FIVE], ids=["worst down", "worst up"])
def test_forged_reports_move_no_share_further_than_the_summary_says(case):
    """All patterns of bits that a forger could send, exactly in expectation."""
    counts = case.draw(np.random.default_rng(7))
    before = decode_categories(counts, case.metric)
    n_forged = round(counts.total * 0.01 / 0.99)
    worst = 0.0
    for pattern in range(32):
        bits = [pattern >> i & 1 for i in range(5)] + [0, 0, 0]
        forged = type(counts)(np.array([n_forged]), n_forged * np.array([bits]))
        after = decode_categories(counts + forged, case.metric).estimates.unbiased
        worst = max(worst, float(np.abs(after - before.estimates.unbiased).max()))
    assert worst <= 1.02 * before.summary.forgery_shift  # weights move a little, too
    assert worst >= 0.9 * before.summary.forgery_shift
