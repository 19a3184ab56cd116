"""The command `hubbub-collector`."""

from hubbub.protocol.interrupts import quiet_interrupts

quiet_interrupts()  # before the imports that take longest

from hubbub.collector.cli.group import main  # noqa: E402

__all__ = ["main"]
