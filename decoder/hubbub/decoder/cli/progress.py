"""What a person sees of a decoding under way: on standard error, and only if that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from hubbub.decoder.job import Observer


class OnTerminal(Observer):
    """Bars for people, and a line a note."""

    def note(self, text: str) -> None:
        """Print a note."""
        click.echo(f"note: {text}", err=True)

    @contextmanager
    def counting(self) -> Iterator[Callable[[int, int], None]]:
        """Show a bar while the context is open; yields update(done, total)."""
        with _on_terminal(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
            task = bar.add_task("counting reports", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def maximising(self) -> Iterator[Callable[[int, float], None]]:
        """Show passes and the gap while the context is open; yields update(passes, gap)."""
        with _on_terminal() as status:
            task = status.add_task("")
            yield lambda passes, gap: status.update(
                task,
                description=f"maximising the likelihood: pass {passes}, duality gap {gap:.3g}",
            )


def _on_terminal(*columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
