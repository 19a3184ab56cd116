"""What only a browser has: localStorage, IndexedDB, tabs, workers, redirects; in Chromium."""

from __future__ import annotations

import json
import mimetypes
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from http_servers import Received
from unit.javascript.node import CLIENT

MILLISECONDS = 60_000
NOISE = {"f": 0.5, "p": 0.25, "q": 0.75}
ENTRY = {"version": 1, "description": "d", "owner": "o", "expires": "2099-12-31", **NOISE}
STRING = {"type": "string", "k": 128, "h": 2, "m": 64}
REGISTRY = {
    "application": "Z\u00fcrich \u65e5\u672c",
    "metrics": {
        "homepage": {**ENTRY, **STRING, "max_values": 3},
        "page": {**ENTRY, **STRING, "memory": "period", "period_days": 3650},
        "theme": {**ENTRY, "type": "boolean", "mode": "one-time", "p": 0, "q": 1},
    },
}
STORAGES = {"localStorage": "browserStorage(localStorage)", "IndexedDB": "browserStorage()"}
START = """
const {{ browserStorage, Telemetry }} = await import("/src/index.js");
const start = (options = {{}}) => new Telemetry({{
  registry: {registry}, endpoint: location.origin, storage: {storage}, batchSize: 10,
  ...options,
}});
"""
UNTIL_FAILED = """
t.flush();
while (!t.status().lastError) await new Promise((resolve) => setTimeout(resolve, 10));
"""
RECORD = """
const telemetry = start();
for (let i = 0; i < 20; i++) {
  telemetry.record("homepage", `page ${i % 7}`);
  telemetry.record("page", `page ${i % 7}`);
  telemetry.record("theme", true);
}
const settled = await telemetry.flush(50_000);
return { settled, ...telemetry.status() };
"""


class Collector(BaseHTTPRequestHandler):
    """Serves the client's sources, and takes every batch but those of /moved, /wrong and /never."""

    server: Server

    def do_GET(self) -> None:
        path = (CLIENT / self.path.lstrip("/")).resolve()
        page = b"<!doctype html><title>t</title>"
        found = path.is_file() and path.is_relative_to(CLIENT / "src")
        kind = mimetypes.guess_type(path.name)[0] if found else "text/html"
        self._answer(200, path.read_bytes() if found else page, kind or "text/html")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        body = Received(self.path, {"Content-Type": self.headers["Content-Type"]}, raw).batch
        if self.path.startswith("/moved/"):
            self._answer(307, b"", "text/plain")
        elif self.path.startswith("/wrong/"):
            self._answer(404, b"", "text/plain")
        elif self.path.startswith("/never/"):
            self._answer(503, b"", "text/plain")
        else:
            self.server.batches.append(body)
            accepted = {"accepted": len(body["reports"])}
            self._answer(201, json.dumps(accepted).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 307:
            self.send_header("Location", "/v1/reports")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the terminal free of requests."""


class Server(ThreadingHTTPServer):
    """What was received, beside the server."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Collector)
        self.batches: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def reports(self, metric: str) -> list[dict[str, Any]]:
        return [r for batch in self.batches for r in batch["reports"] if r["metric"] == metric]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def profile(chromium) -> Iterator[BrowserContext]:
    context = chromium.new_context()
    context.set_default_timeout(MILLISECONDS)
    yield context
    context.close()


def open_page(profile: BrowserContext, server: Server) -> Page:
    page = profile.new_page()
    page.goto(server.url)
    return page


def run(page: Page, storage: str, script: str) -> Any:
    """Run a script that may `start()` a telemetry; return what it returns."""
    start = START.format(registry=json.dumps(REGISTRY), storage=STORAGES[storage])
    return page.evaluate(f"async () => {{ {start} {script} }}")


def test_tabs_are_one_client(profile, server):
    storage = "IndexedDB"
    pages = [open_page(profile, server) for _ in range(3)]
    started = START.format(registry=json.dumps(REGISTRY), storage=STORAGES[storage])
    for page in pages:
        page.evaluate(f"() => {{ window.done = (async () => {{ {started} {RECORD} }})(); }}")
    results = [page.evaluate("() => window.done") for page in pages]
    assert all(result["settled"] for result in results)
    assert sum(result["delivered"] for result in results) == 3 * 40 + 1
    ids = [batch["batch_id"] for batch in server.batches]
    assert len(set(ids)) == len(ids)
    counts = {name: len(server.reports(name)) for name in ("homepage", "page", "theme")}
    assert counts == {"homepage": 60, "page": 60, "theme": 1}
    assert len({report["cohort"] for report in server.reports("page")}) == 1
    ledger = run(pages[0], storage, "return (await start({ consent: false }).ledger()).metrics")
    assert {row["metric"]: row["answers"] for row in ledger} == {
        "homepage": 3,
        "page": 1,
        "theme": 1,
    }


@pytest.mark.parametrize("storage", STORAGES)
def test_unsent_reports_survive_a_reload(storage, profile, server):
    page = open_page(profile, server)
    script = (
        'const t = start({ endpoint: location.origin + "/never", log() {} });'
        'for (let i = 0; i < 5; i++) t.record("homepage", "a");'
        f"{UNTIL_FAILED} await t.close(1); return t.status();"
    )
    status = run(page, storage, script)
    assert (status["recorded"], status["waiting"], status["lastError"]["status"]) == (5, 5, 503)
    page.reload()
    delivered = run(page, storage, "const t = start(); await t.flush(50_000); return t.status()")
    assert delivered["delivered"] == 5
    assert len(server.reports("homepage")) == 5


@pytest.mark.parametrize("storage", STORAGES)
def test_without_consent_nothing_is_stored_and_its_withdrawal_deletes_what_is_unsent(
    storage, profile, server
):
    page = open_page(profile, server)
    unasked = "const t = start({ consent: false, log() {} });"
    look = "return [(await indexedDB.databases()).length, localStorage.length];"
    preview = "await t.close(); await t.preview('homepage', 'a');"
    assert run(page, storage, f"{unasked} {preview} {look}") == [0, 0]
    script = (
        'const t = start({ endpoint: location.origin + "/never", log() {} });'
        'for (let i = 0; i < 5; i++) t.record("homepage", "a");'
        f"{UNTIL_FAILED} await t.close(1); return t.status().waiting;"
    )
    assert run(page, storage, script) == 5
    page.reload()
    kept = run(page, storage, f"{unasked} await t.close(); return t.status().dropped;")
    assert kept == {}, "a start without consent may mean that nobody was asked yet"
    withdrawn = f"{unasked} await t.setConsent(false); return t.status().dropped;"
    assert run(page, storage, withdrawn) == {"consent withdrawn": 5}
    status = run(page, storage, "const t = start(); await t.flush(50_000); return t.status()")
    assert (status["waiting"], server.batches) == (0, [])


def test_a_worker_and_its_page_are_one_client(profile, server):
    page = open_page(profile, server)
    start = START.format(registry=json.dumps(REGISTRY), storage=STORAGES["IndexedDB"])
    origin = server.url.rstrip("/")
    work = f"(async () => {{ {start} {RECORD} }})().then(postMessage);".replace(
        '"/src/index.js"', f'"{origin}/src/index.js"'
    ).replace("location.origin", f'"{origin}"')
    in_worker = page.evaluate(
        """(work) => new Promise((resolve, reject) => {
          const url = URL.createObjectURL(new Blob([work], { type: "text/javascript" }));
          const worker = new Worker(url, { type: "module" });
          worker.onmessage = ({ data }) => resolve(data);
          worker.onerror = (error) => reject(new Error(error.message));
        })""",
        work,
    )
    assert (in_worker["settled"], in_worker["delivered"]) == (True, 41)
    in_page = run(page, "IndexedDB", RECORD)
    assert (in_page["settled"], in_page["delivered"]) == (True, 40)
    assert len({report["cohort"] for report in server.reports("homepage")}) == 1
    assert len({report["cohort"] for report in server.reports("page")}) == 1


def test_forgetting_in_one_tab_clears_indexeddb_too(profile, server):
    page = open_page(profile, server)
    script = f"await (async () => {{ {RECORD} }})();"
    words = run(page, "IndexedDB", f"{script} return start().forget();")
    assert words.startswith("Deleted the secret")
    ledger = run(page, "IndexedDB", "return (await start({ consent: false }).ledger()).spent")
    assert ledger == 0


@pytest.mark.parametrize(
    ("path", "kind"), [("moved", "redirect"), ("wrong", "status")], ids=["redirect", "404"]
)
def test_a_redirect_and_a_wrong_address_are_reported(path, kind, profile, server):
    page = open_page(profile, server)
    script = (
        f'const t = start({{ endpoint: location.origin + "/{path}", log() {{}} }});'
        f't.record("homepage", "a"); {UNTIL_FAILED} return t.status();'
    )
    status = run(page, "localStorage", script)
    assert status["lastError"]["kind"] == kind
    assert server.batches == []


def test_a_full_localstorage_is_no_damage(profile, server):
    page = open_page(profile, server)
    script = """
        const lines = [];
        const log = (line) => void lines.push(line);
        const telemetry = start({ firstRetryMillis: 50, longestRetryMillis: 50, log });
        await telemetry.flush();
        for (let size = 2 ** 23; size >= 1; size /= 2) {
          try {
            localStorage.setItem(`fill ${size}`, "x".repeat(size));
          } catch {}
        }
        telemetry.record("homepage", "a");
        telemetry.flush();
        while (!lines.length) await new Promise((resolve) => setTimeout(resolve, 10));
        const { disabled, waiting } = telemetry.status();
        for (const key of Object.keys(localStorage)) {
          if (key.startsWith("fill")) localStorage.removeItem(key);
        }
        const settled = await telemetry.flush(50_000);
        return { lines, disabled, waiting, settled, delivered: telemetry.status().delivered };
    """
    assert run(page, "localStorage", script) == {
        "lines": ["hubbub: the storage failed and is tried again (QuotaExceededError)"],
        "disabled": None,
        "waiting": 1,
        "settled": True,
        "delivered": 1,
    }
