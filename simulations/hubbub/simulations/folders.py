"""Folders that simulations fill, and empty of what an earlier one left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hubbub.protocol.errors import HubbubError

_MARK = ".hubbub-simulate"
_PRECIOUS = ("hubbub.db", "metrics.toml", "decode.toml", "collector.toml")
"""What simulations write over and a folder of somebody's own service has."""


class FolderError(HubbubError):
    """A folder that has files of somebody else."""


def start_afresh(folder: Path, old: Iterable[str] = ("hubbub.db*",)) -> None:
    """Remove the stores that an earlier simulation left.

    `folder`: exists. `old`: patterns of the files that go. Raises `FolderError` if the folder has a
    store or settings that no simulation made. Raises `OSError` if something can't be removed.
    """
    mark = folder / _MARK
    if not mark.exists():
        for name in _PRECIOUS:
            if (folder / name).exists():
                raise FolderError(
                    f"{folder / name}: no simulation made it, and this one would replace it; "
                    "name another folder"
                )
        mark.touch()
    for pattern in old:
        for path in folder.glob(pattern):
            path.unlink()
