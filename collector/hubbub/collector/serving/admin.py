"""The admin listener: a status page, the same as JSON, and metrics for Prometheus.

Only a service that has this listener imports this module, and so the page's template and the
exposition for Prometheus. The page is HTML and inline SVG, without scripts or anything from other
servers. Invariants: every path needs an admin token; every value on the page is escaped (by the
template engine), and the content security policy allows one style sheet by its hash and nothing
else.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import importlib.resources
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import jinja2
import msgspec
from aiohttp import web

from hubbub.collector.access import Gate
from hubbub.collector.operations.metrics import Metrics
from hubbub.collector.operations.publishing import Watch
from hubbub.collector.problems import Answer, RefusalError, refusal
from hubbub.collector.serving.app import App, reading
from hubbub.collector.serving.connections import Connections, Limits
from hubbub.collector.serving.service import ServiceFiles
from hubbub.protocol import counted
from hubbub.storage import Store

_MOST_BYTES = 2**22  # requests here have no bodies, and short heads
_BACKLOG = 128  # asyncio's own is 100; these come seldom together

_TOLD_BEFORE = dt.timedelta(days=14)
"""Time to get a new key and to bring it to those who need it."""


class _Admin(App):
    """The routes of the admin listener.

    `files`: whose tokens in force are asked on each request, so that they can be exchanged.
    """

    def __init__(self, files: ServiceFiles, watch: Watch, metrics: Metrics) -> None:
        routes = {
            "/": reading(self._get_page),
            "/status.json": reading(self._get_status),
            "/metrics": reading(self._get_metrics),
        }
        super().__init__(routes, metrics, files.current.settings)
        self._files = files
        self._watch = watch

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; a browser that gets a 401 asks for the token."""
        response = await super().handle(request)
        response.headers.update(_HEADERS)
        if response.status == 401:
            response.headers.add("WWW-Authenticate", 'Basic realm="hubbub", charset="UTF-8"')
        return response

    async def _answer(self, request: web.BaseRequest) -> Answer:
        """Refuse requests without a token, whether or not the path exists."""
        if request.body_exists:
            raise RefusalError(413, "too_large", f"body: {request.method} takes none")
        gate = Gate(self._files.current.settings.admin_tokens, "admin")
        gate.admit(_bearer(request.headers.get("Authorization")), dt.datetime.now(dt.UTC).date())
        return await super()._answer(request)

    def _refuse(self, error: RefusalError) -> Answer:
        return refusal(error)  # which isn't counted among those of clients

    async def _get_page(self, _request: web.BaseRequest) -> Answer:
        text = render(await self._watch.status())
        return Answer(200, text.encode(), "text/html; charset=utf-8")

    async def _get_status(self, _request: web.BaseRequest) -> Answer:
        return Answer(200, msgspec.json.encode(await self._watch.status()))

    async def _get_metrics(self, _request: web.BaseRequest) -> Answer:
        return Answer(200, *self._watch.publisher.exposition())


def _bearer(authorization: str | None) -> str | None:
    """Return the header as if the token in a browser's Basic credentials had come as a Bearer."""
    if authorization is None or authorization[:6].lower() != "basic ":
        return authorization
    try:
        pair = base64.b64decode(authorization[6:], validate=True).decode("utf-8")
    except ValueError:  # of Base64, of ASCII or of UTF-8
        return authorization
    return "Bearer " + pair.partition(":")[2]


@asynccontextmanager
async def running_admin_listener(
    port: int, files: ServiceFiles, store: Store, metrics: Metrics
) -> AsyncIterator[str]:
    """Serve operators on a port of `admin_host`, and give the address.

    Raises `HubbubError` if the address can't be listened on.
    """
    settings = files.current.settings
    watch = Watch(lambda: files.current[:2], store, metrics)
    limits = Limits.few(settings, _MOST_BYTES)
    admin = _Admin(files, watch, metrics)
    connections = Connections(admin.handle, limits, metrics, "admin-")
    publishing = asyncio.create_task(watch.run(), name="publish")
    try:
        async with connections.listening(settings.admin_host, port, backlog=_BACKLOG) as address:
            yield address
    finally:
        publishing.cancel()
        await asyncio.wait([publishing])


# The page


def render(status: Mapping[str, Any]) -> str:
    """Return the page."""
    return _PAGE.render(status=status, style=_STYLE, concerns=list(_concerns(status)))


def _concerns(status: Mapping[str, Any]) -> Iterator[str]:
    """Describe in sentences what an operator should look at; nothing if all is well."""
    if status["store_fault"]:
        yield f"The store can't be read: {status['store_fault']}."
    if failing := status["processes_not_reloaded"]:
        yield (
            f"The registry, the keys, the certificate or the switch are wrong: {number(failing)} "
            f"process{'es' if failing > 1 else ''} couldn't read them again and went on with what "
            "was in force. The log says why."
        )
    recent, last = status["recent"], f"in the last {duration(status['publish_seconds'])}"
    if faults := recent["faults"]:
        yield f"{counted(faults, 'request')} {last} {_was(faults)} answered with a fault (5xx)."
    if shed := recent["shed"]:
        yield f"{counted(shed, 'request')} {last} {_was(shed)} turned away."
    for expiry in status["expiries"]:
        if expiry.at < status["at"] + _TOLD_BEFORE:
            yield (
                f"The {expiry.type.replace('_', ' ')} {expiry.name} "
                f"{'ends' if expiry.at > status['at'] else 'ended'} "
                f"on {expiry.at:%Y-%m-%d %H:%M} UTC."
            )
    for finding in status["findings"]:
        yield f"{finding.label}: {finding.text}."
    for task in status["upkeep"]:
        if task["recent_failures"]:
            yield f"The task “{task['task']}” failed {last}."
    if refused := sum(n for _, reason, n in status["requests"] if reason == "unregistered"):
        yield (
            f"{counted(refused, 'request')} since the start had metrics or versions that "
            "the registry doesn’t know. Clients keep these reports and try again for 13 days."
        )
    for metric in status["metrics"]:
        if metric["improbable"]:
            yield (
                f"{metric['name']}: {counted(metric['improbable'], 'report')} since the start with "
                "an improbable number of set bits."
            )


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


def number(value: float) -> str:
    """Write a count: 12,345."""
    return f"{round(value):,}"


def size(value: float | None) -> str:
    """Write bytes: 1.2 MB."""
    if value is None:
        return "unknown"
    if value < 1000:
        return f"{value:.0f} B"
    prefixes = ("", "k", "M", "G", "T", "P")
    exponent = min(int(math.log10(value) // 3), len(prefixes) - 1)
    return f"{value / 1000**exponent:.3g} {prefixes[exponent]}B"


def duration(seconds: float) -> str:
    """Write a time in the largest unit that it has one of: 10 minutes."""
    for unit, length in (("hour", 3600), ("minute", 60)):
        if seconds >= length:
            n = seconds / length
            return f"{n:.3g} {unit}{'s' if n != 1 else ''}"
    return f"{seconds:.3g} seconds"


def moment(value: dt.datetime | None) -> str:
    """Write a time in UTC."""
    return value.strftime("%Y-%m-%d %H:%M:%S UTC") if value else "never"


def bars(values: Sequence[float], highest: float) -> str:
    """Return an SVG path of bars, each one wide, on a picture that is 1 high."""
    scale = 1 / highest if highest > 0 else 0.0
    return "".join(
        f"M{i + 0.08:g} 1V{1 - min(value * scale, 1):.3f}H{i + 0.92:g}V1Z"
        for i, value in enumerate(values)
        if value > 0
    )


_STYLE = (
    importlib.resources.files("hubbub.collector.serving")
    .joinpath("templates/page.css")
    .read_text(encoding="utf-8")
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("hubbub.collector.serving"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_WRITERS = (number, size, duration, moment, bars)
_ENVIRONMENT.globals.update({write.__name__: write for write in _WRITERS})
_PAGE = _ENVIRONMENT.get_template("page.html")
