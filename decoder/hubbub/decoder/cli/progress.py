"""What a person sees of a decoding under way: on standard error, and only if that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

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
    """Bars, and a line a note."""

    def note(self, text: str) -> None:
        """Print a note."""
        click.echo(f"note: {text}", err=True)

    def counting(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Show a bar."""
        return progress_bar("counting reports")

    def maximising(self) -> AbstractContextManager[Callable[[int, float], None]]:
        """Show passes and the gap."""
        return pass_counter("maximising the likelihood")


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the context is open; yields update(done, total)."""
    with _on_terminal(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def pass_counter(label: str) -> Iterator[Callable[[int, float], None]]:
    """Show passes and the gap while the context is open; yields update(passes, gap)."""
    with _on_terminal() as status:
        task = status.add_task("")
        yield lambda passes, gap: status.update(
            task, description=f"{label}: pass {passes}, duality gap {gap:.3g}"
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
