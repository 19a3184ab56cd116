"""What a person sees of long work: on standard error, and only if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the context is open; yields update(done, total)."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415 - nobody sees it elsewhere
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    label_column = TextColumn("{task.description}")
    columns = (label_column, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def pass_counter(label: str) -> Iterator[Callable[[int, float], None]]:
    """Show passes and the gap while the context is open; yields update(passes, gap)."""
    if not sys.stderr.isatty():
        yield lambda _passes, _gap: None
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.status import Status  # noqa: PLC0415

    with Status(label, console=Console(stderr=True)) as status:
        yield lambda passes, gap: status.update(f"{label}: pass {passes}, duality gap {gap:.3g}")
