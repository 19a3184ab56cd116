"""The command `hubbub-collector`."""

from hubbub.collector.cli.group import main

__all__ = ["main"]
