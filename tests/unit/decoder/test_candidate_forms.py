"""Lists of candidates in a form that no client's value has: nothing fits, and the reader learns it.

`Observer.note` warns, so that a decoding without a warning is one that pytest lets pass.
"""

import pytest

from stored_metrics import METRICS, NAMES, WORDS, Stored


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return Stored(tmp_path_factory.mktemp("words"), WORDS, "word 3")


FORMS = {
    "blanks": ("{} ", "begin or end with a blank", '"word 0 "'),
    "tabs": ("\t{}", "have a comma, a semicolon or a tab", r'"\\tword 0"'),
    "quotes": ('"{}"', "are in quotes", '"word 0"'),
    "columns": ("{},1", "have a comma, a semicolon or a tab", '"domain,rank"'),
    "counts": ("  12 {}", "begin or end with a blank", '"  12 word 0"'),
}


@pytest.mark.parametrize("only", [False, True], ids=["whole list", "screened"])
@pytest.mark.parametrize("form", FORMS)
def test_a_list_in_another_form_is_reported_with_an_example(words, tmp_path, form, only):
    how, text, example = FORMS[form]
    header = ["domain,rank"] if form == "columns" else []
    listed = tmp_path / "list.csv"
    listed.write_text("\n".join([*header, *map(how.format, NAMES)]) + "\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=f"candidates: .*{text}, such as {example}, and none"):
        result = words.decode(candidates=listed, method="regression", detected_only=only)
    assert not any(result["detected"])


@pytest.mark.parametrize("form", FORMS)
def test_a_list_of_which_something_fits_is_not(words, form):
    """Blanks and commas may be part of values, and then are found."""
    how = FORMS[form][0]
    result = words.decode(candidates=[*map(how.format, NAMES[:8]), *NAMES], method="regression")
    assert list(result["string"][result["detected"].index(True) :][:1]) == ["word 3"]
    assert "candidates_form" not in {each.code for each in result.findings}


def test_lists_of_a_joint_metric_are_looked_at_too(tmp_path):
    metric, value, _ = METRICS["hashed joint"]
    stored = Stored(tmp_path, metric, value)
    with pytest.warns(UserWarning, match=r"candidates: 2 of the first 2 begin or end"):
        stored.decode(candidates={"site": ["a.example ", "b.example "]})
