"""`hubbub-collector serve`: a flag for each setting, made from its description."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from hubbub.client.errors import HubbubError
from hubbub.collector.config.settings import ConfigError, Settings
from hubbub.collector.config.sources import load
from hubbub.collector.config.text import describe_default, to_toml
from hubbub.collector.errors import StoreError

_WITHOUT_FLAG = {"ingest_keys", "admin_tokens"}  # tables, for the file or the environment
_OTHER_FLAGS = {"max_body_bytes": ["--max-body"]}
_UNITS = {"bytes": "BYTES", "seconds": "SECONDS", "days": "DAYS", "port": "PORT", "host": "HOST"}
_METAVARS = {"store": "URL", "metrics": "FILE", "tls_certificate": "FILE", "tls_key": "FILE"}
_Command = Callable[..., None]


def _with_flags(command: _Command) -> _Command:
    """Add a flag for every setting; what it takes is checked by `Settings`, not by click."""
    for name, field in reversed(Settings.model_fields.items()):
        if name not in _WITHOUT_FLAG:
            command = _flag(name, field)(command)
    return command


def _flag(name: str, field: FieldInfo) -> Callable[[_Command], _Command]:
    flag = "--" + name.replace("_", "-")
    default = describe_default(field)
    words = f"{field.description}  [{default if field.is_required() else f'default: {default}'}]"
    if field.annotation is bool:
        off = flag.replace("--", "--no-", 1)
        return click.option(f"{flag}/{off}", name, default=None, help=words)
    return click.option(
        flag, *_OTHER_FLAGS.get(name, []), name, metavar=_metavar(name, field), help=words
    )


def _metavar(name: str, field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return "|".join(get_args(field.annotation))
    return _METAVARS.get(name) or _UNITS.get(name.rpartition("_")[2], "N")


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
    _run(configuration.settings)


def _run(settings: Settings) -> None:
    # The web framework and the databases are needed from here on only.
    from hubbub.collector.config.masking import mask  # noqa: PLC0415
    from hubbub.collector.operations import logs  # noqa: PLC0415
    from hubbub.collector.serving import server  # noqa: PLC0415

    logs.configure(settings.log_level, log_times=settings.log_times)
    try:
        server.run(settings, click.echo)
    except (HubbubError, StoreError) as error:
        raise click.ClickException(mask(str(error))) from error
