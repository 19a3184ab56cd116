"""`python -m hubbub.release.estimator_host SOCKET NAME PATH`: forks a process for each block.

The host imports an estimator's module once. The process that it forks for a block reads the block,
answers with a number and is killed. Invariant: the host itself reads no block, so that no process
has ever seen more than one.

On the socket it sends `READY`, or why the estimator can't be used. Then it gets, for each block, a
time limit with the descriptor of a pipe that the block comes through, and answers with a number,
nan for a failure. When the socket is closed, it kills what runs and ends: nothing outlives the
process that has started it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import operator
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

NUMBER = struct.Struct("=d")
READY = b"ready"

Block = Mapping[str, np.ndarray[Any, Any]]
Estimator = Callable[[Block], object]


def main() -> None:
    """Serve until the socket is closed."""
    descriptor, name, path = sys.argv[1:]
    control = socket.socket(fileno=int(descriptor))
    control.set_inheritable(False)
    sys.path[:] = json.loads(path)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold data
    try:
        estimator = _find(name)
    except ImportError as error:
        control.sendall(str(error).encode())
        return
    control.sendall(READY)
    while True:
        message, pipes, _, _ = socket.recv_fds(control, NUMBER.size, 1)
        if not message:
            return
        (seconds,) = NUMBER.unpack(message)
        answer = _run(estimator, pipes[0], control, seconds)
        if answer is None:
            return
        control.sendall(NUMBER.pack(answer))


def _find(name: str) -> Estimator:
    """Return what a name, `module:function`, stands for."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:  # sys.exit as well
        raise ImportError(f"can't be imported: {type(error).__name__}: {error}") from error
    try:
        function = operator.attrgetter(function_name)(module)
    except AttributeError:
        raise ImportError(f"there is no {function_name} in {module_name}") from None
    if not callable(function):
        raise ImportError("must be a function")
    found: Estimator = function
    return found


def _run(estimator: Estimator, pipe: int, control: socket.socket, seconds: float) -> float | None:
    """Return a block's estimate, nan for a failure; None if the socket was closed meanwhile."""
    result, answer = os.pipe()
    process = os.fork()
    if process == 0:
        control.close()
        os.close(result)
        _estimate(estimator, pipe, answer)
    with contextlib.suppress(OSError):  # if it has done so itself, or has ended
        os.setpgid(process, process)
    os.close(pipe)
    os.close(answer)
    try:
        readable, _, _ = select.select([result, control.fileno()], [], [], seconds)
        if control.fileno() in readable:
            return None
        message = os.read(result, NUMBER.size) if readable else b""
        return float(NUMBER.unpack(message)[0]) if len(message) == NUMBER.size else math.nan
    finally:
        os.close(result)
        for kill in (os.killpg, os.kill):  # what it has started, too
            with contextlib.suppress(ProcessLookupError):
                kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _estimate(estimator: Estimator, pipe: int, answer: int) -> NoReturn:
    """Read a block, write its estimate, and end; write nothing if the estimator fails."""
    try:
        os.setpgid(0, 0)
        np.random.seed()  # noqa: NPY002 - or all blocks would get the numbers of one state
        with open(pipe, "rb") as stream:
            block = pickle.load(stream)  # noqa: S301 - from the process that has started the host
        found: Any = estimator(block)
        if not isinstance(found, str | bytes):  # numbers of any library, but no words
            os.write(answer, NUMBER.pack(float(found)))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
