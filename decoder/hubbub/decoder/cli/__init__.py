"""The command line: options, inputs, errors, progress."""

from hubbub.protocol.commands import begin_command

begin_command("decoder")  # before the imports that take longest

from hubbub.decoder.cli.group import main  # noqa: E402

__all__ = ["main"]
