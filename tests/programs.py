"""hubbub's programs as processes that are forked from one that has imported what they need.

Starting one takes a sixth of the CPU time of a program that imports for itself, and nothing else
differs: it has its own descriptors, environment, umask, signals and end. Tests of imports, of what
the first seconds are like, and of faults that an import may meet (no descriptors, no memory) run
the programs themselves (`hubbub.simulations.collecting`).
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any, Self, cast

from hubbub.simulations import Collector, listening, serve_arguments

_COLLECTOR = "hubbub.collector"

# What a collector of each kind of store, with its admin page, and a decoder import by need.
_IMPORTED = [
    "aiosqlite",
    "asyncpg",
    "hubbub.collector.cli.service",
    "hubbub.collector.serving.server",
    "hubbub.decoder.cli.decode",
    "hubbub.decoder.type_decoder",
    "hubbub.storage.sqlite",
    "jinja2",
    "prometheus_client",
    "scipy.optimize",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
]

_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(_IMPORTED)


class _Descriptor:
    """A file descriptor that arrives as one of the new process."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[object]]:
        return _arrived, (DupFd(self._number),)


def _arrived(duplicate: Any) -> int:
    return int(duplicate.detach())


class _Process:
    """What the tests use of `subprocess.Popen`."""

    def __init__(
        self,
        command: Sequence[str],
        streams: Sequence[int],
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.args = command
        self.stdout: IO[str] | None = None
        descriptors = tuple(map(_Descriptor, streams))
        umask = os.umask(0o077)
        os.umask(umask)
        environ = dict(os.environ if environment is None else environment)
        state = (folder or Path.cwd(), environ, umask)
        self._process = _forking.Process(target=_run, args=(command, descriptors, *state))
        self._process.start()
        self.pid = cast("int", self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.stdout:
            self.stdout.close()
        self.wait()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ends just now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    """Start `python -m MODULE` with these arguments, its standard output a pipe."""
    reading, writing = os.pipe()
    with Path(os.devnull).open() as nothing, os.fdopen(writing, "w") as stdout:
        process = _Process((module, *arguments), (nothing.fileno(), stdout.fileno(), 2))
    process.stdout = os.fdopen(reading, encoding="utf-8")
    return cast("subprocess.Popen[str]", process)


def run(
    module: str,
    *arguments: str,
    given: str = "",
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE` to its end; return what it wrote, without a newline's translation.

    Its environment is that of the tests unless another is given.
    """
    command = (module, *arguments)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        stdin, *outputs = files
        stdin.write(given.encode())
        stdin.seek(0)
        streams = [file.fileno() for file in files]
        process = stack.enter_context(_Process(command, streams, folder, environment))
        stack.callback(process.kill)
        code = process.wait(timeout)
        for output in outputs:
            output.seek(0)
        stdout, stderr = (output.read().decode() for output in outputs)
    return subprocess.CompletedProcess(command, code, stdout, stderr)


@contextlib.contextmanager
def forked_collector(
    metrics: Path, database: Path | str, options: Sequence[str] = ()
) -> Iterator[Collector]:
    """Serve as `running_collector` does, from a process that has imported all already."""
    with listening(start(_COLLECTOR, *serve_arguments(metrics, database, options))) as collector:
        yield collector


def _run(
    command: Sequence[str],
    streams: Sequence[int],
    folder: Path,
    environ: dict[str, str],
    umask: int,
) -> None:
    """Be the program: what `python -m` would find is put in place first."""
    gc.freeze()  # what is imported by now is no garbage: to look at it would copy all memory
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    module, *arguments = command
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
