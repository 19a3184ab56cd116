"""The settings of a command, from its flags, the environment and one file, as `serve` gets them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import click

from hubbub.collector.config.settings import ConfigError
from hubbub.collector.config.sources import Configuration, load

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
    try:
        return load(flags, file, only)
    except ConfigError as error:
        for fault in error.faults:
            click.echo(f"Error: {fault}", err=True)
        sys.exit(2)
