"""The command `hubbub-collector`, and what its subcommands share: errors and settings.

Each subcommand is imported when it is called: `--help` needs no web framework, and maintaining a
store needs no Parquet.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubbub.protocol.errors import HubbubError
from hubbub.storage.errors import mask

if TYPE_CHECKING:
    from hubbub.collector.config.sources import Configuration

_SUBCOMMANDS = {
    "init": ("hubbub.planning.cli.init", "Ask four questions and write a first metrics.toml."),
    "check": (".checking", "List everything that is wrong with a metrics.toml."),
    "catalogue": ("hubbub.planning.cli.catalogue", "Write web pages that explain a metrics.toml."),
    "serve": (".service", "Receive reports until SIGTERM."),
    "token": (".service", "Make an ingest key or an admin token."),
    "migrate": (".stores", "Bring a store to this version's schema."),
    "maintain": (".stores", "Merge segments and delete what is too old."),
    "replay": (".stores", "Count quarantined reports that the registry now knows."),
    "delete": (".stores", "Delete the reports of a metric."),
    "backup": (".stores", "Copy a store while it is in use."),
    "export": (".stores", "Write reports as Parquet."),
    "import": (".stores", "Read reports from Parquet or CSV."),
    "switch": (".switching", "Turn metrics off in clients that check a switch file."),
    "keygen": (".sealing", "Make a key that clients seal reports to."),
    "open": (".sealing", "Open sealed reports, away from the collector."),
}
"""The module of each, here or in a package above, and the words of `--help`."""

_OTHERS = 0o007  # all rights of all other users of the machine


class _LateGroup(click.Group):
    """A group that imports a subcommand when it is called, and lists all without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the order in which a person meets them."""
        return list(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a subcommand."""
        if cmd_name not in _SUBCOMMANDS:
            return None
        module = importlib.import_module(_SUBCOMMANDS[cmd_name][0], "hubbub.collector.cli")
        commands = (found for found in vars(module).values() if isinstance(found, click.Command))
        return next(command for command in commands if command.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in _SUBCOMMANDS.items()])


@click.group(cls=_LateGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hubbub")
def main() -> None:
    """Receive noisy reports over HTTP and store them durably, but not who sent them."""
    # Databases, exports and all else are for their owner, and for a group if the umask says so.
    os.umask(os.umask(0) | _OTHERS)


@contextlib.contextmanager
def cli_errors() -> Iterator[None]:
    """Turn expected errors into messages, without secrets, and exit code 1."""
    try:
        yield
    except HubbubError as error:
        raise click.ClickException(mask(str(error))) from error
    except BrokenPipeError:
        raise  # standard output has been closed; click ends quietly
    except OSError as error:
        where = error.filename or "file"
        raise click.ClickException(f"{where}: {error.strerror or error}") from error


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with settings; HUBBUB_COLLECTOR_CONFIG can name it instead.",
)


def read_configuration(
    flags: Mapping[str, Any], file: Path | None, only: Collection[str] | None = None
) -> Configuration:
    """Return the configuration (see `load`), or print its faults, one per line, and exit with 2."""
    from hubbub.collector.config.settings import ConfigError  # noqa: PLC0415 - --help stays quick
    from hubbub.collector.config.sources import load  # noqa: PLC0415

    try:
        return load(flags, file, only)
    except ConfigError as error:
        for fault in error.faults:
            click.echo(f"Error: {fault}", err=True)
        sys.exit(2)
