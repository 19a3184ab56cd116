"""Every command's first step: exit quietly on Ctrl-C, and name missing packages.

Libraries that are interrupted while they are imported fail in ways of their own, some of them with
pages of tracebacks; nothing is open then, so the process just ends, with exit code 130. Otherwise
SystemExit is raised, which cleans up as every exception does. Commands call this before they import
anything else, so this module imports next to nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_EXIT_CODE = 128 + signal.SIGINT  # what shells report of a program that Ctrl-C ended


def begin_command(extra: str) -> None:
    """Prepare a command's process, before it imports what takes longest.

    At its end it doesn't look for cycles: that took a tenth of a short command, and the memory goes
    back anyway. `extra`: what brings all packages of the command, such as "collector".
    """
    quiet_interrupts()
    explain_missing_packages(extra)
    atexit.register(gc.freeze)


def quiet_interrupts() -> None:
    """Handle SIGINT from here on, unless somebody else ignores or handles it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # only a process's first thread may
            signal.signal(signal.SIGINT, _exit_on_interrupt)


def _exit_on_interrupt(_number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(_EXIT_CODE)
        frame = frame.f_back
    raise SystemExit(_EXIT_CODE)


def explain_missing_packages(extra: str) -> None:
    """Show how to install a missing package, wherever it is first imported."""
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
