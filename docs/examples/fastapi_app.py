"""FastAPI under uvicorn: `AsyncTelemetry` for as long as the app runs.

    uvicorn --app-dir docs/examples fastapi_app:app

The operator agrees, changes their mind and has everything forgotten on pages of the app, which you
would protect. With several workers (`--workers 4`) each has its own `AsyncTelemetry`, and an answer
reaches the others only when they start anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response

import wiki
from hubbub.client import AsyncTelemetry


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Deliver reports while the app runs; at its end, for up to two seconds, what is left."""
    async with AsyncTelemetry(
        wiki.METRICS, wiki.ENDPOINT, wiki.STATE, consent=wiki.agreed()
    ) as telemetry:
        app.state.telemetry = telemetry
        telemetry.record("storage", wiki.STORAGE)
        yield


app = FastAPI(lifespan=lifespan)


def telemetry_of(request: Request) -> AsyncTelemetry:
    """Return the app's telemetry."""
    return cast("AsyncTelemetry", request.app.state.telemetry)


@app.post("/render")
async def render(request: Request) -> HTMLResponse:
    """Show a page."""
    return HTMLResponse(wiki.render((await request.body()).decode()))


@app.exception_handler(Exception)
async def note_failure(request: Request, error: Exception) -> Response:
    """Report where a page failed; the server goes on to log the error."""
    telemetry_of(request).record("failed_in", wiki.failing_module(error))
    return PlainTextResponse("This page can't be shown.", status_code=500)


@app.get("/admin/telemetry")
async def show(request: Request) -> PlainTextResponse:
    """Tell what is asked, what is sent and what was spent."""
    return PlainTextResponse(wiki.question(telemetry_of(request)))


@app.put("/admin/telemetry")
async def answer(request: Request, consent: bool) -> PlainTextResponse:
    """Take the operator's answer."""
    wiki.save_answer(consent)
    telemetry = telemetry_of(request)
    telemetry.set_consent(consent)
    if reason := telemetry.status().disabled:
        return PlainTextResponse(f"Nothing is recorded: {reason}.")
    telemetry.record("storage", wiki.STORAGE)
    return PlainTextResponse("Thank you.")


@app.delete("/admin/telemetry")
async def forget(request: Request) -> PlainTextResponse:
    """Withdraw consent and delete everything; recording can begin again at the next start."""
    wiki.save_answer(False)
    return PlainTextResponse(await telemetry_of(request).forget())
