"""Tables: any file into rows of users, at most so many each, and faults that are named."""

import datetime as dt
import tempfile
import unicodedata
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyarrow import csv, feather, parquet

from hubbub.release import DataError
from hubbub.release.tables import Role, UserRows, column_names, digest, limited, load, state

KEYS, NUMBERS = Role.KEYS, Role.NUMBERS

SECRET = bytes(range(32))
PEOPLE = pa.table(
    {
        "user": ["ann", "bob", "ann", "eve"],
        "age": pa.array([31, None, 32, 80], pa.int64()),
        "height": [1.7, float("nan"), None, float("inf")],
        "city": pa.array(["Rome", "Oslo", None, "Rome"]).dictionary_encode(),
        "member": [True, None, False, True],
        "since": [dt.date(2026, 11, day) for day in (1, 2, 3, 4)],
        "tags": [["a"], [], None, ["b"]],
    }
)


def rows_of(users: list[str], values: list[int] | None = None) -> UserRows:
    names = list(dict.fromkeys(users))
    codes = np.array([names.index(user) for user in users], dtype=np.int64)
    column = pa.array(values or list(range(len(users))), pa.int64())
    return UserRows(pa.table({"value": column}), codes, names)


def kept(rows: UserRows) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for user, value in zip(rows.users, rows.table.column("value").to_pylist(), strict=True):
        found.setdefault(rows.names[user], []).append(value)
    return found


def write_arrow_stream(table: Any, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


@pytest.mark.parametrize("form", [".parquet", ".feather", ".arrow"])
def test_the_same_rows_come_from_any_form(tmp_path, form):
    path = tmp_path / f"people{form}"
    write = {
        ".parquet": parquet.write_table,
        ".feather": feather.write_feather,
        ".arrow": write_arrow_stream,
    }
    write[form](PEOPLE, path)
    columns = ("age", "height", "city", "member", "since")
    assert column_names(path, "user") == (*columns, "tags")
    numbers = load(path, "user", dict.fromkeys(columns[:-1], NUMBERS))
    assert numbers.numbers("age").tolist() == [31, 32, 80]
    assert numbers.numbers("height").tolist() == [1.7, float("inf")]
    assert numbers.numbers("member").tolist() == [1, 0, 1]
    assert numbers.numbers("city").tolist() == []
    with pytest.raises(DataError, match=r"since can't be read as numbers: it holds date32"):
        load(path, "user", {"since": NUMBERS})
    keys = load(path, "user", dict.fromkeys(columns, KEYS))
    assert keys.keys("age") == ["31", "32", "80"]
    assert keys.keys("height") == ["1.7", "inf"]
    assert keys.keys("city") == ["Rome", "Oslo", "Rome"]
    assert keys.keys("member") == ["true", "false", "true"]
    assert keys.keys("since")[0] == "2026-11-01"
    assert [keys.names[i] for i in keys.users] == ["ann", "bob", "ann", "eve"]
    with pytest.raises(DataError, match="tags can't be asked for: it holds list"):
        load(path, "user", {"tags": KEYS})


def test_cells_of_csv_files_are_what_they_are(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text('user,city,n\n007,Rome,1e3\n7,"two, words",+0.5\n8,NA,x\n9,,-inf\n')
    rows = load(path, "user", {"city": KEYS, "n": NUMBERS})
    assert rows.names == ["007", "7", "8", "9"]
    assert rows.keys("city") == ["Rome", "two, words", "NA"]
    assert rows.numbers("n").tolist() == [1_000, 0.5, float("-inf")]


CELLS = st.one_of(
    st.sampled_from(["", "7", "007", "7.0", "1e3", "x", "NA", "true", "2026-11-01", "nan", "-1"]),
    st.text(st.characters(codec="utf-8", exclude_characters='"\r\n\0'), max_size=5),
)


@given(st.lists(CELLS, min_size=1, max_size=20), CELLS)
def test_whatever_another_user_writes_no_cell_of_others_means_anything_else(cells, his):
    """Neither as a key nor as a number: types aren't guessed."""

    def read(rows: list[tuple[str, str]]) -> tuple[list[str], list[float]]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.csv"
            lines = [f'{user},"{cell}","{cell}"\n' for user, cell in rows]
            path.write_text("user,k,n\n" + "".join(lines), encoding="utf-8", newline="")
            found = load(path, "user", {"k": KEYS, "n": NUMBERS})
            return found.keys("k"), found.numbers("n").tolist()

    others = [(f"u{i}", cell) for i, cell in enumerate(cells)]
    without, with_him = read(others), read([*others, ("him", his)])
    assert with_him[0][: len(without[0])] == without[0]
    assert repr(with_him[1][: len(without[1])]) == repr(without[1])
    assert len(with_him[0]) <= len(without[0]) + 1
    assert len(with_him[1]) <= len(without[1]) + 1


def test_a_directory_is_one_table_in_the_order_of_its_names(tmp_path):
    folder = tmp_path / "days"
    (folder / "later").mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    (folder / "_temporary").mkdir()
    (folder / ".git").mkdir()
    for name in ("later/b", "_temporary/b", ".git/b"):
        parquet.write_table(PEOPLE.slice(2), folder / f"{name}.parquet")
    parquet.write_table(PEOPLE.slice(0, 2), folder / "a.parquet")
    assert load(folder, "user", {"age": NUMBERS}).numbers("age").tolist() == [31, 32, 80]
    before = digest(folder)
    (folder / "a.parquet").rename(folder / "c.parquet")
    assert digest(folder) != before


def test_a_changed_file_changes_digest_and_state(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("user\nann\n")
    before = digest(path), state(path)
    path.write_text("user\nbob\n")
    after = digest(path), state(path)
    assert before[0] != after[0]
    assert before[1] != after[1]


USERS = st.lists(st.sampled_from("abcdefgh"), max_size=60)


@given(USERS, st.integers(1, 4))
def test_users_keep_at_most_so_many_rows_and_all_if_they_have_no_more(users, most):
    before, after = kept(rows_of(users)), kept(limited(rows_of(users), most, SECRET))
    assert before.keys() == after.keys()
    for user, values in after.items():
        assert len(values) == min(most, len(before[user]))
        assert set(values) <= set(before[user])


@given(USERS, st.lists(st.integers(0, 60), max_size=30), st.integers(1, 4))
def test_another_user_changes_nothing_of_what_is_kept_of_others(users, places, most):
    """His rows may lie anywhere among theirs."""
    mine = list(zip(users, range(len(users)), strict=True))
    both = list(mine)
    for number, place in enumerate(places):
        both.insert(min(place, len(both)), ("x", 1_000 + number))
    names, values = [user for user, _ in both], [value for _, value in both]
    with_him = limited(rows_of(names, values), most, SECRET)
    found = kept(with_him)
    found.pop("x", None)
    assert found == kept(limited(rows_of(users), most, SECRET))


CELLS_OF_USERS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "k", "l", "m"])), max_size=40
)


@given(CELLS_OF_USERS, CELLS_OF_USERS, st.integers(1, 3), st.sampled_from([None, ["k", "l"]]))
def test_rows_that_can_not_count_take_no_place_of_those_that_can(others, his, most, keys):
    """Of each user, whatever another one holds, whose rows come in between."""

    def counted(rows: list[tuple[str, str | None]]) -> dict[str, list[str]]:
        codes = np.array(["abcdx".index(user) for user, _ in rows], dtype=np.int64)
        column = pa.array([key for _, key in rows], pa.large_string())
        read = UserRows(pa.table({"value": column}), codes, list("abcdx"))
        found: dict[str, list[str]] = {}
        drawn = limited(read.with_value("value", keys), most, SECRET)
        for user, key in zip(drawn.users, drawn.table.column("value").to_pylist(), strict=True):
            found.setdefault("abcdx"[user], []).append(key)
        return found

    without = counted(others)
    for user in "abcd":
        can = [key for name, key in others if name == user and key in (keys or ["k", "l", "m"])]
        assert len(without.get(user, [])) == min(most, len(can))
    of_him = [("x", key) for _, key in his]
    mixed = [row for pair in zip_longest(of_him, others) for row in pair if row is not None]
    with_him = counted(mixed)
    assert len(with_him.pop("x", [])) <= most
    assert with_him == without


@given(USERS)
def test_a_user_is_in_one_block(users):
    rows = rows_of(users, [ord(user) for user in users])
    blocks = [set(block["value"].tolist()) for block in rows.blocks(5, SECRET)]
    assert len(blocks) == 5
    for user in set(users):
        assert [ord(user) in values for values in blocks].count(True) == 1


def test_which_rows_are_kept_depends_on_the_key_and_is_fair():
    """Each of 4 rows of 4,000 users is kept as often; P(alarm) < 1e-6 (5 standard deviations)."""
    users = [f"u{i}" for i in range(4_000) for _ in range(4)]
    values = [i % 4 for i in range(16_000)]
    one, other = (limited(rows_of_fast(users, values), 1, key) for key in (SECRET, SECRET[::-1]))
    assert kept(one) != kept(other)
    often = np.bincount(one.table.column("value").to_numpy(), minlength=4)
    assert np.abs(often - 1_000).max() < 5 * np.sqrt(4_000 * 0.25 * 0.75)


def rows_of_fast(users: list[str], values: list[int]) -> UserRows:
    encoded = pa.array(users).dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    return UserRows(pa.table({"value": values}), codes, encoded.dictionary.to_pylist())


def write_csv(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("t.csv", "", r"t\.csv: can't be read: it is empty"),
        ("t.csv", "user,age\n", r"t\.csv: has no rows"),
        ("t.csv", "user,age\na,1,2\n", r"t\.csv: line 2: cells = 3: must be 2, as in the first"),
        ("t.csv", "name,age\na,1\n", "no column is named 'user'; there are: name, age"),
        (
            "t.csv",
            "user,age\na,1\n,2\n",
            r"t\.csv: line 3: user is empty; must name the row",
        ),
        ("t.csv", "user,age,age\na,1,2\n", "several columns are named 'age'"),
        ("t.txt", "user\na\n", r"t\.txt: must end in \.parquet, "),
        ("t.parquet", "user\na\n", r"can't be read: not a whole \.parquet file \(ArrowInvalid\)"),
    ],
)
def test_faults_of_files_are_named(tmp_path, name, text, reason):
    path = write_csv(tmp_path / name, text)

    def read():
        load(path, "user", dict.fromkeys(column_names(path, "user"), NUMBERS))

    with pytest.raises(DataError, match=reason):
        read()


def test_faults_of_directories_are_named(tmp_path):
    with pytest.raises(DataError, match="no such file or directory"):
        column_names(tmp_path / "none", "user")
    with pytest.raises(DataError, match="has no files"):
        column_names(tmp_path, "user")
    write_csv(tmp_path / "a.csv", "user,age\na,1\n")
    parquet.write_table(pa.table({"user": ["b"], "age": ["old"]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="must hold files of one form"):
        column_names(tmp_path, "user")
    (tmp_path / "b.parquet").unlink()
    write_csv(tmp_path / "b.csv", "user,years\nb,old\n")
    with pytest.raises(DataError, match=r"b\.csv: its columns aren't those of .*a\.csv"):
        column_names(tmp_path, "user")
    (tmp_path / "country=DE").mkdir()
    with pytest.raises(DataError, match="columns in names of folders aren't read"):
        column_names(tmp_path, "user")


def test_files_of_a_directory_may_hold_different_types(tmp_path):
    for name, ages in (("a", [1, 2]), ("b", [3.0, None]), ("c", ["4", "old"])):
        table = pa.table({"user": [name, name], "age": ages})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    rows = load(tmp_path, "user", {"age": KEYS})
    assert rows.keys("age") == ["1", "2", "3", "4", "old"]
    assert load(tmp_path, "user", {"age": NUMBERS}).numbers("age").tolist() == [1, 2, 3, 4]


def test_a_fault_quotes_nothing_of_the_data(tmp_path):
    with pytest.raises(DataError) as caught:
        load(write_csv(tmp_path / "t.csv", "user,age\nann,secret,42\n"), "user", {})
    assert "secret" not in str(caught.value)


NFC, NFD = (unicodedata.normalize(form, "José 각") for form in ("NFC", "NFD"))


@pytest.mark.parametrize("form", ["text", "dictionary", "csv"])
def test_texts_that_look_the_same_are_one_key_and_one_user(tmp_path, form):
    texts = pa.chunked_array([[NFC, NFD], [None, "ﬁ"], ["fi", NFD]])
    table = pa.table({"user": [NFD, "a", NFC, "b", "c", "d"], "name": texts})
    path = tmp_path / "t.parquet"
    if form == "dictionary":
        table = table.set_column(1, "name", texts.dictionary_encode())
    if form == "csv":
        path = tmp_path / "t.csv"
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)
    rows = load(path, "user", {"name": KEYS})
    assert rows.keys("name") == [NFC, NFC, "ﬁ", "fi", NFC]
    assert [rows.names[user] for user in rows.users] == [NFC, "a", NFC, "b", "c", "d"]


def test_text_that_is_not_utf_8_is_refused(tmp_path):
    broken = pa.array([b"\xff\xfe", b"b"]).view(pa.string())
    parquet.write_table(pa.table({"user": ["a", "b"], "city": broken}), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_bytes(b"user,city\na,\xff\n")
    (tmp_path / "wide.csv").write_text("user,city\na,b\n", encoding="utf-16")
    for name in ("t.parquet", "t.csv", "wide.csv"):
        with pytest.raises(DataError, match="it holds text that isn't UTF-8"):
            load(tmp_path / name, "user", {"city": KEYS})
