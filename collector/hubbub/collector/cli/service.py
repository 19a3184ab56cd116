"""The commands of a service: `serve` with a flag for each setting, and `token` for its secrets."""

from __future__ import annotations

import datetime as dt
import gc
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from hubbub.collector.access import Purpose, generate_secret
from hubbub.collector.cli import cli_errors, config_option, read_configuration, setting_flags
from hubbub.collector.config import TABLES, Settings, load, to_toml, toml_value
from hubbub.protocol import SigningKey
from hubbub.reporting.command_line import WithHeadings

_ONLY_ITS_OWNER = 0o600  # may read and write it


@click.command(
    cls=WithHeadings,
    headings={
        "Senders": "anonymous cors_origins switch improbable_reports",
        "TLS": "tls_certificate tls_key",
        "Storage": "deduplication_days report_days upkeep_seconds",
        "Admin listener and probes": "admin_host publish_seconds probe_host probe_port",
        "Limits": "max_body_bytes max_reports max_connections "
        "max_connections_per_address max_waiting_bytes header_seconds body_seconds drain_seconds "
        "retry_after_seconds",
        "Logs": "log_level",
    },
)
@config_option
@click.option(
    "--print-config",
    is_flag=True,
    help="Print the effective settings with their sources, and exit.",
)
@setting_flags(*(name for name in Settings.model_fields if name not in TABLES))
def serve(config: Path | None, print_config: bool, **flags: Any) -> None:
    """Receive reports until SIGTERM.

    Prints "listening on http://HOST:PORT" once it accepts connections. A batch is answered only
    after it is durable on disk; a batch that is sent again is recognised and counted once.

    Flags override the environment (HUBBUB_COLLECTOR_PORT for --port), which overrides the --config
    file, which overrides the defaults. Keys and admin tokens come from the file or the environment.
    """
    configuration = read_configuration(flags, config)
    if print_config:
        click.echo(to_toml(configuration), nl=False)
        return
    # The service and its databases are needed from here on only. Imports leave no garbage to find.
    gc.disable()
    from hubbub.collector.operations import logs
    from hubbub.collector.serving import server

    gc.enable()
    settings = configuration.settings
    logs.configure(settings.log_level)
    with cli_errors():
        server.run(settings, partial(_read_settings, flags, config), click.echo)


def _read_settings(flags: Mapping[str, Any], config: Path | None) -> Settings:
    return load(flags, config).settings


@click.command()
@click.option("--ingest", "purpose", flag_value="ingest", help="A key for apps (the default).")
@click.option("--admin", "purpose", flag_value="admin", help="A token for the admin listener.")
@click.option(
    "--switch",
    "signing_key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A key that signs switch files: the private key goes to FILE, the public to standard "
    "output.",
)
@click.option(
    "--name",
    default="main",
    show_default=True,
    metavar="NAME",
    help="Name of the entry in the configuration.",
)
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help="Last day (UTC) on which it is valid, such as 2027-12-31; by default it never expires.",
)
def token(
    purpose: Purpose | None, signing_key: Path | None, name: str, expires: dt.datetime | None
) -> None:
    """Make an ingest key, an admin token, or a key that signs switch files.

    Prints only the secret to standard output. It is shown once and stored nowhere: hand it to
    whoever will use it. Standard error gets the lines for the collector's configuration file, which
    holds only the secret's hash. To rotate a secret, add an entry under another name, move its
    users over, then remove the old entry.

    With --switch, only the owner of FILE can read it: keep it away from whatever serves the switch
    file, and give the public key to the app (`switch_key`).
    """
    if signing_key:
        if purpose or expires:
            raise click.UsageError("--switch: such a key has no other options")
        with cli_errors():
            made = SigningKey.generate()
            text = f"# Signs switches for {made.public}.\n{made}\n"
            descriptor = os.open(signing_key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _ONLY_ITS_OWNER)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        click.echo(made.public)
        return
    purpose = purpose or "ingest"
    secret, sha256 = generate_secret(purpose)
    entry: dict[str, object] = {"sha256": sha256}
    if expires:
        entry["expires"] = expires.date()
    table = "admin_tokens" if purpose == "admin" else "ingest_keys"
    try:
        Settings.model_validate({"metrics": "", table: {name: entry}})
    except ValidationError as error:
        expected = "must be lower-case letters, digits, - and single _ (64 at most)"
        raise click.UsageError(f"--name {name!r}: {expected}") from error
    click.echo(secret)
    lines = [f"[{table}.{name}]", *(f"{key} = {toml_value(value)}" for key, value in entry.items())]
    click.echo("\n".join(lines), err=True)
