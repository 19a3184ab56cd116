"""The command `switch`: writes the file that turns metrics off in clients, and signs it."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

import click

from hubbub.collector.cli import cli_errors, config_option, configured, setting_flags
from hubbub.protocol import (
    LEAST_RATE,
    Rate,
    Registry,
    SigningKey,
    SwitchDocument,
    SwitchError,
    SwitchFile,
    VerifyKey,
    check_rate,
)
from hubbub.reporting.command_line import atomic_write
from hubbub.storage import StoreError

_DEFAULT = Path("switch.json")
_TIME = "%Y-%m-%dT%H:%M:%SZ"

_switch_option = click.option(
    "--switch",
    "file",
    metavar="FILE",
    help=f"The switch file.  [default: from HUBBUB_COLLECTOR_SWITCH or --config, else {_DEFAULT}]",
)


@click.group()
def switch() -> None:
    """Turn metrics off, or down to a sample, in clients that check a switch file.

    Clients with the option `switch` fetch the file at most once a day, and only when they are
    sending anyway. The collector can serve it (setting `switch`), and so can any file host. It
    can't turn on a metric that the app doesn't ask, or change an epsilon.
    """


@switch.command()
@_switch_option
@click.option("--public", metavar="KEY", help="Check that the file is signed with this key.")
@config_option
def show(file: str | None, public: str | None, config: Path | None) -> None:
    """Check the file and list what it turns off."""
    path = configured(config, switch=file).switch or _DEFAULT
    with cli_errors():
        found = SwitchFile.parse(path.read_bytes())
        verify = VerifyKey.parse(public) if public else None
        found.check(found.document.application, verify, time.time())
    _print(found.document, is_signed=bool(found.signature))


@switch.command("set")
@click.argument("metric")
@click.argument("rate")
@click.option(
    "--version", type=click.IntRange(1), metavar="N", help="Only this version.  [default: all]"
)
@_switch_option
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The private key to sign with, made by `token --switch`.",
)
@setting_flags("metrics")
@config_option
def set_rate(
    metric: str,
    rate: str,
    version: int | None,
    file: str | None,
    key: Path | None,
    metrics: str | None,
    config: Path | None,
) -> None:
    """Set the share of clients that report a metric.

    RATE is off, on, or a number such as 0.1. With off, clients don't record the metric, spend
    nothing on it, and drop its waiting reports; with on, all report it as before. For a share they
    draw again in each period of the metric, or once if it has no periods; the clients of a lower
    rate also belong to every higher one. The least is 0.001, as fewer clients than that could be
    singled out.
    """
    try:
        share = {"on": None, "off": 0.0}[rate] if rate in {"on", "off"} else float(rate)
        if share is not None:
            check_rate("RATE", share)
    except ValueError as error:  # of the float, or a SwitchError
        expected = f"must be on, off, or a number from {LEAST_RATE} to below 1"
        raise click.UsageError(f"RATE = {rate!r}: {expected}") from error
    settings = configured(config, metrics=metrics, switch=file)
    path = settings.switch or _DEFAULT
    with cli_errors():
        registry = Registry.load(settings.metrics)
        if share is not None:
            registry[metric]  # raises for an unknown one, and names those that exist
        signer = _read_key(key) if key else None
        before = SwitchDocument(registry.application, "")
        if path.exists():
            found = SwitchFile.parse(path.read_bytes())
            found.check(registry.application, None, time.time())
            if found.signature and not signer:
                raise SwitchError(f"{path}: is signed; give --key to sign it again")
            before = found.document
        rates = [r for r in before.rates if r.metric != metric or version not in {None, r.version}]
        if share is not None:
            rates.append(Rate(metric, version, share))
        rates.sort(key=lambda r: (r.metric, r.version or 0))
        document = SwitchDocument(registry.application, _issued(before.issued), tuple(rates))
        body = signer.sign(document.to_json()) if signer else document.to_json()
        atomic_write(path, lambda file: file.write(body))
    _print(document, is_signed=bool(signer))


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


def _print(document: SwitchDocument, *, is_signed: bool) -> None:
    for rate in document.rates:
        versions = "all versions" if rate.version is None else f"version {rate.version}"
        share = f"reported by {rate.rate:.4g} of all clients" if rate.rate else "off"
        click.echo(f"{rate.metric}, {versions}: {share}")
    signed = "signed" if is_signed else "not signed"
    click.echo(f"{document.application}, issued {document.issued}, {signed}")


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
