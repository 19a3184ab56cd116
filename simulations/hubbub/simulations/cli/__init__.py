"""The command `hubbub-simulate`."""

from hubbub.protocol.commands import explain_missing_packages, quiet_interrupts

quiet_interrupts()  # before the imports that take longest
explain_missing_packages("simulations")

from hubbub.simulations.cli.group import main  # noqa: E402

__all__ = ["main"]
