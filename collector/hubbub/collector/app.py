"""The web application: POST /v1/reports and GET /livez.

A request is parsed, checked, handed to the group commit and answered; nothing about who sent it is
looked at, kept or logged.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from hubbub.client.metrics import Registry
from hubbub.collector.commit import GroupCommit, running_group_commit
from hubbub.collector.errors import BatchError, BusyError, StoreError
from hubbub.collector.ingest import BatchReader
from hubbub.collector.problems import problem
from hubbub.collector.store import open_store

MAX_BODY_BYTES = 2**20
MAX_WAITING_BATCHES = 4096
_RETRY_SECONDS = 5

_READER = web.AppKey("reader", BatchReader)
_COMMIT = web.AppKey("commit", GroupCommit)

_log = logging.getLogger("hubbub.collector")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(registry: Registry, store_url: str, max_body: int = MAX_BODY_BYTES) -> web.Application:
    """Return the collector's application; the store is opened when it starts.

    Parameters
    ----------
    registry : Registry
    store_url : str
        Such as "sqlite:///hubbub.db"; made if missing.
    max_body : int
        Bytes of a request's body, after decompression.
    """

    async def storage(app: web.Application) -> AsyncIterator[None]:
        async with open_store(store_url, create=True) as store:
            await store.declare(registry.values())
            async with running_group_commit(store, MAX_WAITING_BATCHES) as commit:
                app[_COMMIT] = commit
                yield

    app = web.Application(middlewares=[_problems], client_max_size=max_body)
    app[_READER] = BatchReader(registry)
    app.cleanup_ctx.append(storage)
    app.router.add_post("/v1/reports", _post_reports)
    app.router.add_get("/livez", _get_livez)
    return app


async def _post_reports(request: web.Request) -> web.Response:
    body = await request.read()
    batch = request.app[_READER].read(body, request.content_type)
    accepted = sum(map(len, batch.records.values()))
    if await request.app[_COMMIT].submit(batch):
        return web.json_response({"accepted": accepted}, status=201)
    return web.json_response({"accepted": accepted, "duplicate": True})


async def _get_livez(_request: web.Request) -> web.Response:
    return web.json_response({"status": "alive"})


@web.middleware
async def _problems(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer every failure with a problem document, and log none of the request."""
    try:
        return await handler(request)
    except BatchError as error:
        return problem(error.status, error.detail, reports=error.reports)
    except BusyError as error:
        return problem(503, f"too busy: {error}", retry_after=_RETRY_SECONDS)
    except StoreError as error:
        return problem(503, str(error), retry_after=_RETRY_SECONDS)
    except web.HTTPRequestEntityTooLarge:
        return problem(413, f"body: must be at most {request.client_max_size} bytes")
    except web.HTTPException as error:
        answer = problem(error.status, f"{request.method} {request.path}: {error.reason}")
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except web.RequestPayloadError:
        return problem(400, "body: incomplete, or not what Content-Encoding says")
    except ConnectionError:
        raise
    except Exception as error:
        # Without the exception's text, which may quote the request.
        frames = "".join(traceback.format_tb(error.__traceback__))
        _log.error("unexpected %s\n%s", type(error).__name__, frames)
        return problem(500, "unexpected error; it has been logged")
