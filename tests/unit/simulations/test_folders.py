"""A folder of simulations is emptied of what they left, and of nothing else."""

import pytest

from hubbub.simulations import FolderError, start_afresh


def test_stores_of_an_earlier_simulation_are_removed_and_all_else_stays(tmp_path):
    start_afresh(tmp_path)
    for name in ("hubbub.db", "hubbub.db-wal", "metrics.toml", "notes.txt"):
        (tmp_path / name).touch()
    start_afresh(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["metrics.toml", "notes.txt"]


@pytest.mark.parametrize("name", ["hubbub.db", "metrics.toml", "decode.toml", "collector.toml"])
def test_files_that_no_simulation_made_are_left_alone(tmp_path, name):
    (tmp_path / name).write_text("precious")
    for _ in range(2):
        with pytest.raises(FolderError, match=f"{name}: no simulation made it"):
            start_afresh(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"
