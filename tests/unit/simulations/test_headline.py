"""Published numbers that follow from formulas are reproduced."""

import pytest

from hubbub.simulations.paper.headline import Headline, formula_lines


@pytest.mark.parametrize(
    "line", list(formula_lines()), ids=lambda line: f"{line.number} {line.what}"
)
def test_headline_number_is_reproduced(line):
    assert line.within, f"{line.ours} instead of {line.stated}"


def test_tolerance_is_a_share_of_the_stated_number():
    line = Headline(1, "source", "what", 100.0, 104.0, 0.05, "formula")
    assert line.within
    assert not Headline(1, "source", "what", 100.0, 106.0, 0.05, "formula").within
