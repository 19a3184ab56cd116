"""The proxies of the documentation, as Debian packages them, before a collector of this machine."""

import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import trustme

from service.posting import SECONDS, wait_until

ROOT = Path(__file__).parents[2]
_NGINX = """
daemon off;
pid nginx.pid;
error_log stderr;
{user}
events {{ worker_connections 2048; }}
http {{
    client_body_temp_path body;
    proxy_temp_path answers;
    {block}
}}
"""


class Proxy:
    """A running proxy.

    `host` and `port`: where it speaks TLS. `log`: all that it writes. `authority`: the certificate
    of whoever signed its own.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.host, self.port, self.log = "localhost", port, folder / "log"
        self.authority = folder / "authority.pem"

    @property
    def url(self) -> str:
        """Where clients send."""
        return f"https://{self.host}:{self.port}"

    def connection(self, source: str = "127.0.0.1") -> http.client.HTTPSConnection:
        """Return a connection from an address, that isn't open yet."""
        trust = ssl.create_default_context(cafile=self.authority)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=SECONDS, source_address=(source, 0), context=trust
        )


def _nginx(folder: Path, port: int, collector: str, certificate: Path) -> list[str]:
    """Return the command that serves the block of docs/do/deploy.md, with other addresses."""
    block = _documented(
        "nginx",
        {
            "127.0.0.1:8100": collector,
            "listen 443": f"listen 127.0.0.1:{port}",
            "/etc/ssl/telemetry.pem": str(certificate),
            "/etc/ssl/telemetry.key": str(certificate),
        },
    )
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(_NGINX.format(user=user, block=block), encoding="utf-8")
    return [_program("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def _caddy(folder: Path, port: int, collector: str, certificate: Path) -> list[str]:
    """Return the command that serves the Compose example's file, with other addresses."""
    text = (ROOT / "docs" / "deploy" / "compose" / "Caddyfile").read_text(encoding="utf-8")
    for old, new in {
        "{$HUBBUB_HOST} {": f"https://localhost:{port} {{\n\ttls {certificate} {certificate}",
        "collector:8100": collector,
        ":8080 {": f"http://localhost:{free_port()} {{",
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    text = text.replace("{\n", "{\n\tadmin off\n\tauto_https disable_redirects\n", 1)
    (folder / "Caddyfile").write_text(text, encoding="utf-8")
    return [
        _program("caddy"),
        "run",
        "--config",
        str(folder / "Caddyfile"),
        "--adapter",
        "caddyfile",
    ]


def _haproxy(folder: Path, port: int, collector: str, certificate: Path) -> list[str]:
    """Return the command that serves the sections of docs/do/deploy.md, with other addresses."""
    block = _documented(
        "haproxy",
        {
            "127.0.0.1:8100": collector,
            ":443": f"127.0.0.1:{port}",
            "/etc/ssl/telemetry.pem": str(certificate),
        },
    )
    (folder / "haproxy.cfg").write_text(f"global\n    maxconn 4096\n{block}", encoding="utf-8")
    return [_program("haproxy"), "-db", "-f", str(folder / "haproxy.cfg")]


def _documented(language: str, changes: dict[str, str]) -> str:
    page = (ROOT / "docs" / "do" / "deploy.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    for old, new in changes.items():
        assert block.count(old) == 1, old
        block = block.replace(old, new)
    return str(block)


PROXIES: dict[str, Callable[[Path, int, str, Path], list[str]]] = {
    "nginx": _nginx,
    "haproxy": _haproxy,
    "caddy": _caddy,
}


@contextmanager
def running_proxy(name: str, folder: Path, collector: str) -> Iterator[Proxy]:
    """Run one before a collector as long as the context is open.

    `name`: one of `PROXIES`. `folder`: for its files. `collector`: the collector's URL.
    """
    folder.mkdir()
    authority, port = trustme.CA(), free_port()
    certificate = folder / "certificate.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    command = PROXIES[name](folder, port, collector.removeprefix("http://"), certificate)
    proxy = Proxy(folder, port)
    authority.cert_pem.write_to_path(proxy.authority)
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    with proxy.log.open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        wait_until(lambda: _listens(port) or process.poll() is not None)
        assert process.poll() is None, proxy.log.read_text(encoding="utf-8")
        yield proxy
    finally:
        process.terminate()
        process.wait(30)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert found, f"{name} isn't installed"
    return found


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
