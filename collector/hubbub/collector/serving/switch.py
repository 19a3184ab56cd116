"""The switch, served as the bytes of its file: the same for every client, whoever asks.

docs/protocol, section 12, describes the file. Invariants: what is served was in order when it was
read, and a wrong file replaces nothing; no answer depends on the request, so none marks a client.
"""

from __future__ import annotations

import time
from pathlib import Path

from hubbub.collector.http1 import Head, HttpResponse
from hubbub.protocol.errors import SwitchError
from hubbub.protocol.switch import MOST_BYTES, SwitchFile

_FIELDS = (("Cache-Control", "max-age=300"),)  # what is kept on the way is five minutes old at most
_State = tuple[int, int, int]


def read_switch(path: Path, application: str) -> bytes:
    """Return the bytes of a switch's file.

    Raises `SwitchError` if it can't be read, isn't a switch that is obeyed now, or is another
    application's.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        SwitchFile.parse(data).check(application, None, time.time())
    except OSError as error:
        raise SwitchError(f"{path}: {error.strerror or error}") from error
    except SwitchError as error:
        raise SwitchError(f"{path}: {error}") from error
    return data


class ServedSwitch:
    """Answers GET /v1/switch.

    `application`: the registry's. Raises `SwitchError` if the file is wrong at the start.
    """

    def __init__(self, path: Path, application: str) -> None:
        self._path = path
        self._application = application
        self._seen = self._state()
        self._read()

    def get(self, _head: Head) -> HttpResponse:
        """Answer with the file."""
        return self._response

    def look(self) -> bool:
        """Read the file if it has changed; return whether it has.

        Raises `SwitchError` if it is wrong, once: what was served so far is served until it changes
        again.
        """
        state = self._state()
        if state == self._seen:
            return False
        self._seen = state
        self._read()
        return True

    def _read(self) -> None:
        data = read_switch(self._path, self._application)
        self._response = HttpResponse(200, data, "text/plain; charset=utf-8", _FIELDS)

    def _state(self) -> _State | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
