"""A command without its packages: which extra brings them, in one line, not a traceback.

Commands call this before they import anything that an extra brings, so it imports next to nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


def explain_missing_packages(extra: str) -> None:
    """Say how to install a package that isn't found, wherever it is first imported.

    Parameters
    ----------
    extra : str
        What brings all packages of the command, such as "collector".
    """
    show = sys.excepthook

    def explain(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        missing = isinstance(error, ModuleNotFoundError) and error.name
        if missing and not missing.startswith("hubbub"):
            print(  # noqa: T201
                f"Error: the package {missing} is missing: pip install 'hubbub[{extra}]'",
                file=sys.stderr,
            )
        else:
            show(kind, error, traceback)

    sys.excepthook = explain
