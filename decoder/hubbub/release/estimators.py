"""Any function's estimates of blocks of the data, each made in a process of its own.

An estimator need not be private, but its value for a block must depend on that block alone: state
that it keeps from one block to the next would carry one user's data into several estimates. So each
block has a fresh process, forked from a host (`estimator_host`) that has imported the function's
module and seen no data. Failures become a default, for whether a block fails is private, too.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import Self

import numpy as np

from hubbub.inference import FloatArray
from hubbub.release.errors import QueryError
from hubbub.release.estimator_host import NUMBER, READY, Block

_ONE_THREAD = dict.fromkeys(
    ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Several processes share the cores; and a process with threads can't be forked safely."""
_PATIENCE = 5.0  # seconds until a host that doesn't end is killed


def run_estimator(
    name: str,
    blocks: Sequence[Block],
    *,
    default: float,
    seconds: float,
    processes: int,
    progress: Callable[[int, int], None],
) -> FloatArray:
    """Return the estimates of blocks, in their order.

    `name`: `module:function`; a module in the current directory will do. The function gets a block
    as a mapping of columns' names to arrays, and returns a real number. `blocks`: one user is in
    one of them. `default`: the estimate of a block whose process raises, crashes, returns anything
    but a finite real number, or takes too long. `seconds`: after which a block's process, and what
    it has started, is killed. `processes`: how many run at the same time. `progress`: gets the
    number of blocks that are done, and of all, after each. Returns an array of shape (blocks,).
    Raises `QueryError` if an argument makes no sense, or there is no such function; then no block
    was run.

    Notes
    -----
    What an estimator prints is thrown away, and exceptions aren't shown. But it runs with the
    caller's rights, and three things aren't private: how long all takes, files or network that it
    writes to, and whatever it does to other processes. Run only what you have read.
    """
    _check(name, default, seconds, processes)
    estimates = np.full(len(blocks), float(default))
    count = min(processes, len(blocks))
    if not count:
        return estimates
    with contextlib.ExitStack() as stack:
        pool = ThreadPoolExecutor(count)
        stack.callback(pool.shutdown, cancel_futures=True)
        hosts = [stack.enter_context(_Host(name)) for _ in range(count)]
        idle: SimpleQueue[_Host] = SimpleQueue()
        for host in hosts:
            host.wait_until_ready()
            idle.put(host)

        def estimate(block: Block) -> float:
            host = idle.get()
            try:
                return host.estimate(block, seconds)
            finally:
                idle.put(host)

        places = {pool.submit(estimate, block): place for place, block in enumerate(blocks)}
        for done, future in enumerate(as_completed(places), start=1):
            found = future.result()
            if math.isfinite(found):
                estimates[places[future]] = found
            progress(done, len(blocks))
    return estimates


def _check(name: str, default: float, seconds: float, processes: int) -> None:
    module, _, function = name.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), *function.split(".")]):
        raise QueryError(f"estimator = {name!r}: must be module:function")
    if not math.isfinite(default):
        raise QueryError(f"default = {default}: must be a finite number")
    if not 0 < seconds < math.inf:
        raise QueryError(f"seconds = {seconds}: must be a finite number above 0")
    if processes < 1:
        raise QueryError(f"processes = {processes}: must be at least 1")


class _Host:
    """A running `estimator_host`, which another one replaces if an estimator ends it."""

    def __init__(self, name: str) -> None:
        self._name, self._closed, self._lock = name, False, threading.Lock()
        self._start()

    def wait_until_ready(self) -> None:
        """Return when the module is imported (raises QueryError if it can't be)."""
        answer = b""
        while answer != READY and (more := self._socket.recv(4096)):
            answer += more
        if answer != READY:
            reason = answer.decode(errors="replace") or "its process ended while it was imported"
            raise QueryError(f"estimator = {self._name!r}: {reason}")

    def estimate(self, block: Block, seconds: float) -> float:
        """Return a block's estimate; nan for a failure."""
        try:
            return self._ask(block, seconds)
        except OSError:  # its process has killed the host
            with self._lock:
                if self._closed:
                    return math.nan
                self._stop()
                self._start()
            self.wait_until_ready()
            return math.nan

    def _ask(self, block: Block, seconds: float) -> float:
        reader, writer = os.pipe()
        with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb") as pipe:
            try:
                socket.send_fds(self._socket, [NUMBER.pack(seconds)], [reader])
            finally:
                os.close(reader)
            pickle.dump(dict(block), pipe)
        answer = self._socket.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(answer) < NUMBER.size:
            raise ConnectionError("the host has ended")
        return float(NUMBER.unpack(answer)[0])

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair()
        path = json.dumps([str(os.getcwd()), *sys.path])  # noqa: PTH109 - a string
        module = "hubbub.release.estimator_host"
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our module
                # -P: no module in the current directory takes the place of one that the host needs
                [sys.executable, "-P", "-m", module, str(theirs.fileno()), self._name, path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, **_ONE_THREAD},
            )

    def _stop(self) -> None:
        """Close the socket, whereupon the host kills what runs, and ends."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._socket.close()

    def __enter__(self) -> Self:
        """Return the host itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """End it, whatever it does."""
        with self._lock:
            self._closed = True
            self._stop()
