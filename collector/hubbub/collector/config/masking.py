"""Mask secrets in what is printed or logged.

Two sorts are known: the collector's own keys and tokens, by their form, and passwords in addresses.
"""

from __future__ import annotations

import re

MASK = "***"
_SECRET = re.compile(r"(hub_(?:ingest|admin)_)[A-Za-z0-9_-]+")
# Up to the last @: a password that isn't percent-encoded, as it should be, may hold any character.
_PASSWORD = re.compile(r"(://[^\s:/?#@]*):\S+@|([?&](?:ssl)?password=)[^\s&#'\"]+", re.IGNORECASE)


def mask(text: str) -> str:
    """Return the text with every key, token and password in an address replaced by ***."""
    return _PASSWORD.sub(_without_password, _SECRET.sub(rf"\1{MASK}", text))


def _without_password(match: re.Match[str]) -> str:
    user, parameter = match.groups()
    return f"{user}:{MASK}@" if parameter is None else f"{parameter}{MASK}"
