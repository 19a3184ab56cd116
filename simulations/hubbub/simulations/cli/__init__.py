"""The command `hubbub-simulate`."""

from hubbub.protocol.commands import begin_command

begin_command("simulations")  # before the imports that take longest

from hubbub.simulations.cli.group import main  # noqa: E402

__all__ = ["main"]
