"""`hubbub-collector serve`: a flag for each setting, made from its description."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from hubbub.collector.cli.errors import cli_errors
from hubbub.collector.config.settings import ConfigError, Settings
from hubbub.collector.config.sources import load
from hubbub.collector.config.text import describe_default, to_toml

_WITHOUT_FLAG = {"ingest_keys", "admin_tokens"}  # tables, for the file or the environment
_OTHER_FLAGS = {"max_body_bytes": ["--max-body"]}
_UNITS = {"bytes": "BYTES", "seconds": "SECONDS", "days": "DAYS", "port": "PORT", "host": "HOST"}
_METAVARS = {"store": "URL", "metrics": "FILE", "tls_certificate": "FILE", "tls_key": "FILE"}
_Command = Callable[..., None]


def _with_flags(command: _Command) -> _Command:
    """Add a flag for every setting; what it takes is checked by `Settings`, not by click."""
    for name, field in reversed(Settings.model_fields.items()):
        if name in _WITHOUT_FLAG:
            continue
        flag = "--" + name.replace("_", "-")
        default = describe_default(field)
        note = default if field.is_required() else f"default: {default}"
        words = f"{field.description}  [{note}]"
        if field.annotation is bool:
            off = flag.replace("--", "--no-", 1)
            command = click.option(f"{flag}/{off}", name, default=None, help=words)(command)
            continue
        metavar = _METAVARS.get(name) or _UNITS.get(name.rpartition("_")[2], "N")
        if get_origin(field.annotation) is Literal:
            metavar = "|".join(get_args(field.annotation))
        flags = [flag, *_OTHER_FLAGS.get(name, [])]
        command = click.option(*flags, name, metavar=metavar, help=words)(command)
    return command


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with settings; HUBBUB_COLLECTOR_CONFIG names it too.",
)
@click.option(
    "--print-config", is_flag=True, help="Print the effective settings and their sources; end."
)
@_with_flags
def serve(config: Path | None, print_config: bool, **flags: Any) -> None:
    """Receive reports until SIGTERM.

    Prints "listening on http://HOST:PORT" once it accepts connections. A batch is answered only
    after it is durable on disk; one that is sent again is recognised and counted once.

    A flag wins over the environment (HUBBUB_COLLECTOR_PORT for --port), that over the file of
    --config, that over the default. Ingest keys and admin tokens come from file or environment.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        configuration = load(given, config)
    except ConfigError as error:
        for fault in error.faults:
            click.echo(f"Error: {fault}", err=True)
        sys.exit(2)
    if print_config:
        click.echo(to_toml(configuration), nl=False)
        return
    # The web framework and the databases are needed from here on only.
    from hubbub.collector.operations import logs  # noqa: PLC0415
    from hubbub.collector.serving import server  # noqa: PLC0415

    settings = configuration.settings
    logs.configure(settings.log_level, log_times=settings.log_times)
    with cli_errors():
        server.run(settings, click.echo)
