"""What people read, word for word, in every case; JavaScript is held to the same file."""

from unit.client import texts


def test_texts_are_those_of_the_file_for_both_clients():
    assert texts.FILE.read_text(encoding="utf-8") == texts.text()
