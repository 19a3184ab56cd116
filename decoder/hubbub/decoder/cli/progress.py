"""What a person sees of a decoding under way: on standard error, and only if that is a terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import click

from hubbub.decoder.type_decoder import Observer
from hubbub.reporting.command_line import pass_counter, progress_bar


class OnTerminal(Observer):
    """Bars, and one line per note."""

    def note(self, text: str) -> None:
        """Print a note."""
        click.echo(f"note: {text}", err=True)

    def counting(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Show a bar."""
        return progress_bar("counting reports")

    def searching(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Show a bar."""
        return progress_bar("looking for strings, step by step")

    def maximising(self) -> AbstractContextManager[Callable[[int, float], None]]:
        """Show passes and the gap."""
        return pass_counter("maximising the likelihood")
