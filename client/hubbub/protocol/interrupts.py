"""Ctrl-C of a command: no word, and exit code 130, at any moment.

Libraries that are interrupted while they are imported fail in ways of their own, some of them with
pages of tracebacks; nothing is open then, so the process just ends. Otherwise SystemExit is raised,
which cleans up as every exception does. Commands call this before they import anything else, so
this module imports next to nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_EXIT_CODE = 128 + signal.SIGINT  # what shells report of a program that Ctrl-C ended


def quiet_interrupts() -> None:
    """Handle SIGINT from here on, unless somebody else ignores or handles it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # only a process's first thread may
            signal.signal(signal.SIGINT, _leave)


def _leave(_number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(_EXIT_CODE)
        frame = frame.f_back
    raise SystemExit(_EXIT_CODE)
