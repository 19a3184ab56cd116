"""Flask under gunicorn: one `Telemetry` in each worker process.

    gunicorn --chdir docs/examples --workers 2 flask_app:app

It is made where the app is. With `--preload` that is before the workers are forked, and works as
well: a child starts anew, and never sends what its parent recorded. All workers share one state
directory, and so are one client with one account.

Consent is read at the start, because `set_consent` in one worker doesn't reach the others: after
another answer (`python wiki.py`), `kill -HUP` the gunicorn that runs without `--preload`, or
restart it.
"""

from __future__ import annotations

from flask import Flask, Response, got_request_exception, request

import wiki
from hubbub.client import Telemetry

app = Flask(__name__)
telemetry = Telemetry(wiki.METRICS, wiki.ENDPOINT, wiki.STATE, consent=wiki.agreed())
telemetry.record("storage", wiki.STORAGE)


@app.post("/render")
def render() -> str:
    """Show a page."""
    return wiki.render(request.get_data(as_text=True))


@got_request_exception.connect_via(app)
def note_failure(_app: Flask, exception: BaseException, **_extra: object) -> None:
    """Report where a page failed; Flask goes on to log the error, and answers 500."""
    telemetry.record("failed_in", wiki.failing_module(exception))


@app.get("/admin/telemetry")
def show_telemetry() -> Response:
    """Tell the operator what is asked, what is sent and what was spent (protect such pages)."""
    return Response(wiki.question(telemetry), mimetype="text/plain")
