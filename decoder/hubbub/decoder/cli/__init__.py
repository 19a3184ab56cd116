"""The command line: options, inputs, errors, progress."""

from hubbub.decoder.cli.group import main

__all__ = ["main"]
