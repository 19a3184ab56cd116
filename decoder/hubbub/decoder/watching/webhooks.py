"""What results newly say -> those who asked to be told, by HTTP.

A message is sent until it was taken once: a file beside the results holds what was. Invariant: an
address, which may be a secret, is in no message, log or file.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import html
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urljoin, urlsplit

from hubbub.decoder.watching.options import WatchOptions
from hubbub.decoder.watching.results import (
    Result,
    WatchError,
    days_of,
    read_result,
    reports_in,
)
from hubbub.reporting.findings import Finding, Level
from hubbub.reporting.formats.files import atomic_write

_SENT: Final = ".sent.json"
_SECONDS = 10
"""A receiver that takes longer is away; the next run tries again."""


def message_of(result: Result, level: Level, url: str) -> dict[str, Any]:
    """Return what is posted of a result: the findings, and "text", which chat programs show.

    `level`: only what is newly said at this level or above. `url`: where people reach the results'
    folder; empty: unknown.
    """
    told = [each for each in result.news if each.level >= level]
    lines = "".join(f"\n- {_inert(each)}" for each in told)
    link = urljoin(url, f"{result.report}/{result.day}.html") if url else ""
    return {
        "text": f"{result.report}, {result.day}:{lines}" + (f"\n{link}" if link else ""),
        "report": result.report,
        "day": f"{result.day}",
        "link": link,
        "findings": [each.as_json() for each in told],
    }


def _inert(finding: Finding) -> str:
    """Return a finding as a piece of code, in which chat programs see no link and nobody's name.

    Its strings may be clients'.
    """
    return f"`{html.escape(finding.labelled, quote=False).replace('`', chr(39))}`"


def tell(watch: WatchOptions, until: dt.date) -> list[str]:
    """Post what wasn't taken yet of the last days' results.

    `until`: of results of the `catch_up` days up to it, so that a new address isn't flooded.
    Returns what failed, in words.
    """
    since = until - dt.timedelta(days=watch.catch_up - 1)
    waiting = [
        result
        for report in reports_in(watch.output, watch.names)
        for day in days_of(watch.output, report, until)
        if since <= day
        for result in [read_result(watch.output, report, day)]
        if any(each.level >= watch.level for each in result.news)
    ]
    sent = _sent(watch.output)
    faults = []
    for url in watch.webhooks:
        address = hashlib.sha256(url.encode()).hexdigest()
        for result in waiting:
            key = f"{result.report}/{result.day}"
            if key in sent.get(address, []):
                continue
            fault = _post_in_time(url, message_of(result, watch.level, watch.url))
            if fault:
                faults.append(f"{urlsplit(url).hostname}: {fault}; {key} will be sent again")
                break
            recent = [
                each for each in sent.get(address, []) if each.rsplit("/", 1)[1] >= f"{since}"
            ]
            sent[address] = [*recent, key]
            atomic_write(watch.output / _SENT, partial(_write, sent))
    return faults


def _sent(folder: Path) -> dict[str, list[str]]:
    with suppress(FileNotFoundError):
        text = (folder / _SENT).read_text(encoding="utf-8")
        try:
            found: dict[str, list[str]] = json.loads(text)
        except ValueError as error:
            raise WatchError(
                f"{folder / _SENT}: isn't JSON. Remove it; what was told is told again"
            ) from error
        return found
    return {}


def _write(sent: Mapping[str, list[str]], file: BinaryIO) -> None:
    file.write(json.dumps(sent, indent=1).encode())


def _post(url: str, message: Mapping[str, Any]) -> str:
    """Post a message; return why it wasn't taken, or nothing."""
    request = urllib.request.Request(  # noqa: S310 - https, or this machine: `options` saw to it
        url,
        json.dumps(message, ensure_ascii=False).encode(),
        {"Content-Type": "application/json", "User-Agent": "hubbub"},
    )
    try:
        with _OPENER.open(request, timeout=_SECONDS):
            return ""
    except urllib.error.HTTPError as error:
        return f"answered {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"not reached ({type(error).__name__})"


def _post_in_time(url: str, message: Mapping[str, Any]) -> str:
    outcome: list[str] = []
    thread = threading.Thread(target=lambda: outcome.append(_post(url, message)), daemon=True)
    thread.start()
    thread.join(2 * _SECONDS)
    return outcome[0] if outcome else "no answer in time"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which could lead where the file didn't."""

    def redirect_request(self, *_: Any) -> None:
        """Return nothing: the answer's own status is the outcome."""


_OPENER = urllib.request.build_opener(_NoRedirect)
