"""The command line of releases."""

from hubbub.protocol.commands import begin_command

begin_command("release")  # before the imports that take longest

from hubbub.release.cli.group import main  # noqa: E402

__all__ = ["main"]
