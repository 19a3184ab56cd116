"""Files with one private key each, for their owner only."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hubbub.protocol.errors import SealedError, SwitchError
from hubbub.storage.errors import StoreError

_ONLY_ITS_OWNER = 0o600  # may read and write it
_Key = TypeVar("_Key")


def write_key(file: Path, words: str, key: str) -> None:
    """Make a file with a key, below a line that says what it is; none is replaced."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _ONLY_ITS_OWNER)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(f"{words}\n{key}\n")
        opened.flush()
        os.fsync(opened.fileno())


def read_key(file: Path, parse: Callable[[str], _Key]) -> _Key:
    """Return the key in a file; an error names the file and nothing that is in it."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        texts = [line for line in lines if line.strip() and not line.startswith("#")]
        if len(texts) != 1:
            raise SealedError(f"{len(texts)} keys; must be one, and lines that begin with #")
        return parse(texts[0])
    except (SealedError, SwitchError, UnicodeDecodeError) as error:
        fault = "must be text" if isinstance(error, UnicodeDecodeError) else error
        raise StoreError(f"{file}: {fault}") from error
