"""PgBouncer, as Debian packages it, before the tests' PostgreSQL."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from databases import place_for_servers
from service.posting import wait_until

_PROGRAM = "/usr/sbin/pgbouncer"


class Pool:
    """A running PgBouncer.

    `url`: the database's address through it.
    """

    def __init__(self, folder: Path, url: str, settings: dict[str, object]) -> None:
        database, server = url.partition("@/")[2].split("?host=")
        self._port, self._folder = _free_port(), folder
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/{database}"
        lines = {
            "listen_addr": "127.0.0.1",
            "listen_port": self._port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "default_pool_size": 40,
            **settings,
        }
        text = f"[databases]\n* = host={server} user=postgres\n[pgbouncer]\n"
        text += "".join(f"{name} = {value}\n" for name, value in lines.items())
        (folder / "pgbouncer.ini").write_text(text, encoding="utf-8")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        as_nobody = ["-u", "nobody"] if os.geteuid() == 0 else []  # it refuses to run as root
        command = [_PROGRAM, *as_nobody, str(self._folder / "pgbouncer.ini")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: self._listens() or self._process.poll() is not None)
        assert self._process.poll() is None, (self._folder / "log").read_text(encoding="utf-8")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _listens(self) -> bool:
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


@contextmanager
def pooled(url: str, mode: str, **settings: object) -> Iterator[Pool]:
    """Run PgBouncer before a database as long as the context is open.

    `url`: the database's own address, by the server's Unix socket. `mode`: its pool_mode:
    "session", "transaction" or "statement". `settings`: more of its configuration.
    """
    with tempfile.TemporaryDirectory(prefix="hubbub-pool-", dir=place_for_servers()) as folder:
        Path(folder).chmod(0o755)  # for the user that it becomes
        pool = Pool(Path(folder), url, {"pool_mode": mode, **settings})
        try:
            yield pool
        finally:
            pool.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
