"""The errors of storage, and how secrets are masked in their texts.

Known are keys and tokens of ours, by their form, and passwords in addresses.
"""

from __future__ import annotations

import re
from typing import Self

from hubbub.protocol import HubbubError

MASK = "***"
_SECRET = re.compile(r"(hub_(?:ingest|admin)_)[A-Za-z0-9_-]+")
# Up to the last @: a password that isn't percent-encoded, as it should be, may hold any character.
_PASSWORD = re.compile(r"(://[^\s:/?#@]*):\S+@|([?&](?:ssl)?password=)[^\s&#'\"]+", re.IGNORECASE)


class StoreError(HubbubError):
    """The store can't be opened, read or written, or holds something else than expected."""

    @classmethod
    def at(cls, url: str, fault: str) -> Self:
        """Return the error of a fault of the store at an address, whose password is masked."""
        return cls(f"store {mask_address(url)!r}: {fault}")


class UnreachableError(StoreError):
    """The store's server doesn't answer, or takes no writes yet; it may do so later."""


class ReportFileError(StoreError):
    """A file or directory of reports isn't what it should be; the message says where."""


class CountsError(StoreError):
    """A row of counts is damaged, or of other parameters; other rows are read as ever."""


class MissingFileError(ReportFileError):
    """A file of reports isn't there, or no longer."""


class StorageError(StoreError):
    """Object storage refuses, fails or is silent; the message says what to do."""


def mask(text: str) -> str:
    """Return the text with every key, token and password in an address replaced by ***."""

    def without_password(match: re.Match[str]) -> str:
        user, parameter = match.groups()
        return f"{user}:{MASK}@" if parameter is None else f"{parameter}{MASK}"

    return _PASSWORD.sub(without_password, _SECRET.sub(rf"\1{MASK}", text))


def mask_address(url: str) -> str:
    """Return an address without its password, which may hold any character, spaces too."""
    url = re.sub(r"(://[^:/@]*):.*@", rf"\1:{MASK}@", url)
    return re.sub(r"(password=)[^&]*", rf"\1{MASK}", url)
