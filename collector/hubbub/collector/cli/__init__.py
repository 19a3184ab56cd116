"""The command `hubbub-collector`."""

from hubbub.protocol import begin_command

begin_command("collector")  # before the imports that take longest

from hubbub.collector.cli.group import main  # noqa: E402

__all__ = ["main"]
