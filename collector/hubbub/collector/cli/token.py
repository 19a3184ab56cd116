"""`hubbub-collector token`: a new secret, shown once, and what the configuration gets to know."""

from __future__ import annotations

import datetime as dt

import click

from hubbub.collector.access.auth import Purpose, generate_secret
from hubbub.collector.config.text import toml_value

_SCOPES = ("read", "export", "delete")


@click.command()
@click.option("--ingest", "purpose", flag_value="ingest", help="A key for apps (the default).")
@click.option("--admin", "purpose", flag_value="admin", help="A token for the admin listener.")
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
    help="Last day (UTC) on which it is good, such as 2027-12-31; by default for ever.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    help="What an admin token may do; may be repeated.  [default: read]",
)
def token(
    purpose: Purpose | None, name: str, expires: dt.datetime | None, scopes: tuple[str, ...]
) -> None:
    """Make an ingest key or an admin token.

    Standard output is the secret alone, once: hand it to who is to use it, it is stored nowhere.
    Standard error has the lines for the collector's configuration file, which gets to know only the
    secret's hash. To rotate, add an entry under another name, change over who uses it, then remove
    the old one.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - so that --help is quick

    from hubbub.collector.config.settings import Settings  # noqa: PLC0415

    if scopes and purpose != "admin":
        raise click.UsageError("--scope: only admin tokens have scopes; add --admin")
    purpose = purpose or "ingest"
    secret, sha256 = generate_secret(purpose)
    entry: dict[str, object] = {"sha256": sha256}
    if purpose == "admin":
        entry["scopes"] = tuple(scopes or ("read",))
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
