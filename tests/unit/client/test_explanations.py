"""What people read, word for word, in every case; JavaScript is held to the same file."""

import json

import textstat

from unit.client import texts


def test_texts_are_those_of_the_file_for_both_clients():
    assert texts.FILE.read_text(encoding="utf-8") == texts.text()


def test_every_text_keeps_to_one_unit_and_says_what_isnt_bounded_so():
    for row in json.loads(texts.text()):
        text = row["text"]
        assert text.count("-fold (epsilon ") == text.count("-fold")
        assert "without any bound" not in text
        assert "at most not" not in text
        assert "inf" not in text.split()


def test_rounds_of_coin_flips_are_those_that_the_metric_has():
    previews = [row for row in texts.rows() if row["case"].startswith("preview: ")]
    for row in previews:
        entry = next(iter(row["registry"]["metrics"].values()))
        if entry.get("response") == "subset" or entry["type"] == "number":
            assert "coin flips" not in row["text"]
        else:
            rounds = "one round" if entry.get("mode") in ("one-time", "once") else "two rounds"
            assert f"after {rounds} of coin flips" in row["text"]


def test_a_child_of_fourteen_can_read_every_text():
    """Grade by the automated readability index (letters per word, words per sentence); age is 5
    more.

    Each line is a sentence; the bits of a report, which nobody reads aloud, are left out.
    """
    for row in texts.rows():
        lines = [line.strip(" .:;") for line in row["text"].splitlines()]
        text = ". ".join(line for line in lines if " " in line) + "."
        assert textstat.automated_readability_index(text) <= 9, text
