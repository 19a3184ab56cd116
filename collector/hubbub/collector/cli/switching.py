"""The command `switch`: writes the file that turns metrics off in clients, and signs it."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hubbub.collector.cli.group import cli_errors, config_option
from hubbub.collector.cli.stores import configured, metrics_option
from hubbub.protocol import (
    Rate,
    Registry,
    SigningKey,
    SwitchDocument,
    SwitchError,
    SwitchFile,
    VerifyKey,
    check_rate,
)
from hubbub.storage import StoreError

_Command = Callable[..., None]
_version_option = click.option(
    "--version", type=click.IntRange(1), metavar="N", help="Only this version.  [default: all]"
)
_switch_option = click.option(
    "--switch",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The switch file.  [default: from HUBBUB_COLLECTOR_SWITCH or --config, else switch.json]",
)
_ONLY_ITS_OWNER = 0o600  # may read and write it
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def _edit_options(command: _Command) -> _Command:
    """Add the flags that all commands have which change the file."""
    key = click.option(
        "--key",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The private key to sign with, made by `switch key`.",
    )
    return _switch_option(key(metrics_option(config_option(command))))


@click.group()
def switch() -> None:
    """Turn metrics off, or down to a sample, in clients that check a switch file.

    Clients with the option `switch` fetch the file at most once a day, and only when they are
    sending anyway. The collector can serve it (setting `switch`), and so can any file host. It
    can't turn on a metric that the app doesn't ask, or change an epsilon.
    """


@switch.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def key(file: Path) -> None:
    """Make a key to sign the switch file with.

    The private key goes to FILE, which only its owner can read. Keep it away from whatever serves
    the switch file. Standard output gets only the public key, for the app's `switch_key`.
    """
    with cli_errors():
        made = SigningKey.generate()
        _write_key(file, f"# Signs switches for {made.public}.", str(made))
    click.echo(made.public)


@switch.command()
@click.argument("metric")
@_version_option
@_edit_options
def off(metric: str, version: int | None, **options: Any) -> None:
    """Stop all clients from reporting a metric.

    Clients don't record it, spend nothing on it, and drop its waiting reports.
    """
    _set_rate(metric, version, 0.0, **options)


@switch.command()
@click.argument("metric")
@click.argument("rate", type=float)
@_version_option
@_edit_options
def sample(metric: str, rate: float, version: int | None, **options: Any) -> None:
    """Let only a share of clients, such as 0.1, report a metric.

    Clients draw anew in each period of the metric, or once if it has no periods. The clients of a
    lower rate also belong to every higher one. The least rate is 0.001, as fewer clients than that
    could be singled out; 0 turns the metric off.
    """
    try:
        check_rate("RATE", rate)
    except SwitchError as error:
        raise click.UsageError(str(error)) from error
    _set_rate(metric, version, rate, **options)


@switch.command()
@click.argument("metric")
@_version_option
@_edit_options
def on(metric: str, version: int | None, **options: Any) -> None:
    """Take a metric out of the file: clients report it as before."""
    _set_rate(metric, version, None, **options)


@switch.command()
@_switch_option
@click.option("--public", metavar="KEY", help="Check that the file is signed with this key.")
@metrics_option
@config_option
def show(file: Path | None, public: str | None, metrics: str | None, config: Path | None) -> None:
    """Check the file and list what it turns off."""
    with cli_errors():
        path, registry = _configured(file, metrics, config)
        found = SwitchFile.parse(path.read_bytes())
        verify = VerifyKey.parse(public) if public else None
        found.check(registry.application, verify, time.time())
    _print(found.document, "signed" if found.signature else "not signed")


def _set_rate(
    metric: str,
    version: int | None,
    rate: float | None,
    *,
    file: Path | None,
    key: Path | None,
    metrics: str | None,
    config: Path | None,
) -> None:
    """Replace what a file says of a metric; None: let it say nothing."""
    with cli_errors():
        path, registry = _configured(file, metrics, config)
        if rate is not None:
            registry[metric]  # raises for an unknown one, and names those that exist
        signer = _read_key(key) if key else None
        before = SwitchDocument(registry.application, "")
        if path.exists():
            found = SwitchFile.parse(path.read_bytes())
            found.check(registry.application, None, time.time())
            if found.signature and not signer:
                raise SwitchError(f"{path}: is signed; give --key to sign it again")
            before = found.document
        others = (r for r in before.rates if (r.metric, r.version) != (metric, version))
        kept = [r for r in others if r.metric != metric or version is not None]
        new = [] if rate is None else [Rate(metric, version, rate)]
        rates = sorted([*kept, *new], key=lambda r: (r.metric, r.version or 0))
        document = SwitchDocument(registry.application, _issued(before.issued), tuple(rates))
        body = document.to_json()
        _replace(path, signer.sign(body) if signer else body)
    _print(document, "signed" if signer else "not signed")


def _configured(
    file: Path | None, metrics: str | None, config: Path | None
) -> tuple[Path, Registry]:
    settings = configured(config, metrics=metrics, switch=str(file) if file else None)
    return settings.switch or Path("switch.json"), Registry.load(settings.metrics)


def _issued(before: str) -> str:
    """Return the present, or what follows the last time if that is later: clients go by it."""
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    if before:
        try:
            last = dt.datetime.strptime(before, _TIME).replace(tzinfo=dt.UTC)
        except ValueError as error:  # a day that isn't in the calendar
            raise SwitchError(f"issued = {before!r}: must be a time in the calendar") from error
        now = max(now, last + dt.timedelta(seconds=1))
    return now.strftime(_TIME)


def _replace(path: Path, data: bytes) -> None:
    """Put a complete file in place: it may be served meanwhile."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _print(document: SwitchDocument, signed: str) -> None:
    for rate in document.rates:
        versions = "all versions" if rate.version is None else f"version {rate.version}"
        share = f"reported by {rate.rate:.4g} of all clients" if rate.rate else "off"
        click.echo(f"{rate.metric}, {versions}: {share}")
    click.echo(f"{document.application}, issued {document.issued}, {signed}")


def _write_key(file: Path, words: str, key: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _ONLY_ITS_OWNER)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(f"{words}\n{key}\n")
        opened.flush()
        os.fsync(opened.fileno())


def _read_key(file: Path) -> SigningKey:
    """Return the key in a file; an error names the file and nothing that is in it."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        texts = [line for line in lines if line.strip() and not line.startswith("#")]
        if len(texts) != 1:
            raise SwitchError(f"{len(texts)} keys; must be one, and lines that begin with #")
        return SigningKey.parse(texts[0])
    except (SwitchError, UnicodeDecodeError) as error:
        fault = "must be text" if isinstance(error, UnicodeDecodeError) else error
        raise StoreError(f"{file}: {fault}") from error
