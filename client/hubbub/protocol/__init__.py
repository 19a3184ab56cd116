"""Parameters, metric types, registry, hashing and records that client and servers share.

docs/protocol describes it with test vectors. Importing a module costs no more than the standard
library and mmh3; only `records`, which stores and decoders use, needs numpy.

A package's `__init__.pyi` names what others may use, and each name is imported when it is first
used: a command that only knows an error waits for no database's library. Invariant: type checkers
and the interpreter read the same file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module

# Patterns, because `ast` takes a third of what apps wait for when they import the client.
_IMPORT = re.compile(r"^from (\S+) import ([^(\n]+|\([^)]+)", re.MULTILINE)
_NAME = re.compile(r"(\w+) as ")


def lazy_names(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for the package of an `__init__.py`."""

    @cache
    def homes() -> dict[str, str]:
        with open(f"{file}i", encoding="utf-8") as stub:  # noqa: PTH123 - mathematics has no paths
            imports = _IMPORT.findall(stub.read())
        return {name: module for module, names in imports for name in _NAME.findall(names)}

    def get(name: str) -> object:
        # Names with underscores are Python's own questions, which a stub doesn't answer.
        if name.startswith("_") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(homes()[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return get, lambda: sorted(homes())


__getattr__, __dir__ = lazy_names(__name__, __file__)
