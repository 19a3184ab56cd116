"""The command `hubbub-collector`, and what its subcommands share: errors and settings.

Each subcommand is imported when it is called: `--help` needs no web framework, and maintaining a
store needs no Parquet.
"""

from __future__ import annotations

from hubbub.protocol import begin_command

begin_command("collector")  # before the imports that take longest

import os
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from hubbub.reporting import command_line
from hubbub.storage import mask

if TYPE_CHECKING:
    from hubbub.collector.config import Configuration, Settings

_HERE = "hubbub.collector.cli"
_SUBCOMMANDS = {
    "init": ("hubbub.planning.cli.init:init", "Ask four questions and write a first metrics.toml."),
    "check": (f"{_HERE}.checking:check", "List everything that is wrong with a metrics.toml."),
    "catalogue": (
        "hubbub.planning.cli.privacy:catalogue",
        "Write web pages that explain a metrics.toml.",
    ),
    "serve": (f"{_HERE}.service:serve", "Receive reports until SIGTERM."),
    "token": (f"{_HERE}.service:token", "Make a key for apps, operators or switch files."),
    "maintain": (
        f"{_HERE}.stores:maintain",
        "Merge segments, count old reports, delete what is too old.",
    ),
    "delete": (f"{_HERE}.stores:delete", "Delete the reports of a metric."),
    "backup": (f"{_HERE}.stores:backup", "Copy a store while it is in use."),
    "export": (f"{_HERE}.stores:export", "Write reports as Parquet."),
    "import": (f"{_HERE}.stores:import_", "Read reports from Parquet files."),
    "switch": (
        f"{_HERE}.switching:switch",
        "Turn metrics off in clients that check a switch file.",
    ),
}
"""Where each is, and the words of `--help`."""

_UNITS = {"bytes": "BYTES", "seconds": "SECONDS", "days": "DAYS", "port": "PORT", "host": "HOST"}
_METAVARS = {"cors_origins": "ORIGINS", "store": "URL"}
Command = Callable[..., None]

_OTHERS = 0o007  # all rights of all other users of the machine


@click.group(
    cls=command_line.LazyGroup,
    commands_in={name: where for name, (where, _) in _SUBCOMMANDS.items()},
    words={name: words for name, (_, words) in _SUBCOMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="hubbub")
def main() -> None:
    """Receive noisy reports over HTTP and store them durably, but not who sent them."""
    # Databases, exports and all else are for their owner, and for a group if the umask says so.
    os.umask(os.umask(0) | _OTHERS)


cli_errors = partial(command_line.cli_errors, nameless="file", masked=mask)

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with settings, which flags override; HUBBUB_COLLECTOR_CONFIG may name it.",
)


def setting_flags(*names: str) -> Callable[[Command], Command]:
    """Add a flag for each of these settings; what it takes is checked by `Settings`."""
    from hubbub.collector.config import Settings, describe

    def add(command: Command) -> Command:
        for name in reversed(names):
            field = Settings.model_fields[name]
            flag = "--" + name.replace("_", "-")
            words, default = describe(field)
            words += f"  [{default if field.is_required() else f'default: {default}'}]"
            if field.annotation is bool:
                off = flag.replace("--", "--no-", 1)
                command = click.option(f"{flag}/{off}", name, default=None, help=words)(command)
                continue
            metavar = _METAVARS.get(name) or _UNITS.get(name.rpartition("_")[2], "N")
            if Path in {field.annotation, *get_args(field.annotation)}:
                metavar = "FILE"
            if get_origin(field.annotation) is Literal:
                metavar = "|".join(get_args(field.annotation))
            command = click.option(flag, name, metavar=metavar, help=words)(command)
        return command

    return add


def read_configuration(
    flags: Mapping[str, Any], file: Path | None, only: Collection[str] | None = None
) -> Configuration:
    """Return the configuration (see `load`), or print its faults, one per line, and exit with 2."""
    from hubbub.collector.config import ConfigError, load

    try:
        return load(flags, file, only)
    except ConfigError as error:
        for fault in error.faults:
            click.echo(f"Error: {fault}", err=True)
        sys.exit(2)


def configured(config: Path | None, **flags: str | None) -> Settings:
    """Return the settings of these names, as they are configured for the service."""
    return read_configuration(flags, config, only=flags).settings
