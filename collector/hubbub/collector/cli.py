"""The command `hubbub-collector`."""

from __future__ import annotations

import asyncio
import logging

import click

from hubbub.client.errors import HubbubError
from hubbub.client.metrics import Registry
from hubbub.collector.app import MAX_BODY_BYTES, make_app
from hubbub.collector.errors import StoreError
from hubbub.collector.server import serve as serve_app


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hubbub")
def main() -> None:
    """Receive noisy reports over HTTP and store them, unlinkably and durably."""


@main.command()
@click.option("--metrics", required=True, metavar="FILE", help="The registry, metrics.toml.")
@click.option(
    "--store",
    default="sqlite:///hubbub.db",
    show_default=True,
    metavar="URL",
    help="Database for the reports; made if missing.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8100,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 lets the system choose.",
)
@click.option(
    "--max-body",
    default=MAX_BODY_BYTES,
    show_default=True,
    type=click.IntRange(1),
    metavar="BYTES",
    help="Largest request body, after decompression.",
)
@click.option(
    "--drain-seconds",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0),
    help="On SIGTERM, how long requests under way may take to end.",
)
def serve(
    metrics: str, store: str, host: str, port: int, max_body: int, drain_seconds: float
) -> None:
    """Serve POST /v1/reports and GET /livez until SIGTERM.

    Prints "listening on http://HOST:PORT" once it accepts connections. A batch is answered only
    after it is durable on disk; one that is sent again is recognised and counted once.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    try:
        app = make_app(Registry.load(metrics), store, max_body)
        asyncio.run(serve_app(app, host, port, drain_seconds=drain_seconds, announce=_announce))
    except (HubbubError, StoreError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"--host {host} --port {port}: {error.strerror}") from error


def _announce(address: str) -> None:
    click.echo(f"listening on {address}")
