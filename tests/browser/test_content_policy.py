"""The JavaScript client in pages that allow scripts and connections of their own origin alone."""

import json
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from browser.sites import Site, running_site
from browser.watching import Watched
from factories import registry_toml
from hubbub.simulations import running_collector
from service.posting import stored_count

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>An app</title></head>
<body><output></output><script type="module" src="{script}"></script></body></html>
"""
# What an app does, in a page or in a worker.
APP = """
import { browserStorage, Telemetry } from "/hubbub-client/src/index.js";
const telemetry = new Telemetry({
  registry: await (await fetch("/metrics.json")).json(),
  endpoint: "/telemetry",
  storage: STORAGE,
  timeoutMillis: 1_000,
});
telemetry.record("homepage", "news.example.org");
await telemetry.flush(30_000);
const { recorded, delivered, dropped, disabled } = telemetry.status();
"""
SHOW = 'document.querySelector("output").textContent = JSON.stringify(status);'
IN_PAGE = f"{APP} const status = {{ recorded, delivered, dropped, disabled }}; {SHOW}"
IN_WORKER = f"{APP} postMessage({{ recorded, delivered, dropped, disabled }});"
PAGE_OF_WORKER = f"""
const worker = new Worker("/worker.js", {{ type: "module" }});
worker.onmessage = ({{ data: status }}) => {{ {SHOW} }};
"""
FILES = {
    "/local": PAGE.format(script="/local.js"),
    "/local.js": IN_PAGE.replace("STORAGE", "browserStorage(localStorage)"),
    "/indexed": PAGE.format(script="/indexed.js"),
    "/indexed.js": IN_PAGE.replace("STORAGE", "browserStorage()"),
    "/worker": PAGE.format(script="/start-worker.js"),
    "/start-worker.js": PAGE_OF_WORKER,
    "/worker.js": IN_WORKER.replace("STORAGE", "browserStorage()"),
}
_MILLISECONDS = 60_000


@dataclass(frozen=True, slots=True)
class Deployment:
    """A site, the collector behind it, and the one browser profile that visits."""

    site: Site
    collector: str  # its address
    context: BrowserContext
    database: Path  # the collector's

    def count_stored(self) -> int:
        with ThreadPoolExecutor(1) as elsewhere:  # this thread has the browser's event loop
            return elsewhere.submit(stored_count, self.database).result()


@pytest.fixture
def deployment(chromium, metrics_file, tmp_path) -> Iterator[Deployment]:
    database = tmp_path / "hubbub.db"
    registry = json.dumps(tomllib.loads(registry_toml()), default=str)
    with (
        running_collector(metrics_file, database) as collector,
        running_site({**FILES, "/metrics.json": registry}, collector.url) as site,
        chromium.new_context() as context,
    ):
        yield Deployment(site, collector.url, context, database)


def expect_delivered(page: Page, reports: int) -> None:
    """Wait until the page's one report, and those that others had left, are delivered."""
    status = {"recorded": 1, "delivered": reports, "dropped": {}, "disabled": None}
    text = json.dumps(status, separators=(",", ":"))
    expect(page.locator("output")).to_have_text(text, timeout=_MILLISECONDS)


@pytest.mark.parametrize("path", ["/local", "/indexed", "/worker"])
def test_page_under_a_strict_content_policy_records_and_delivers(deployment, path):
    site = deployment.site.url
    watched = Watched(deployment.context.new_page())
    watched.page.goto(f"{site}{path}")
    expect_delivered(watched.page, 1)
    assert deployment.count_stored() == 1
    assert watched.complaints == []
    assert f"{site}/telemetry/v1/reports" in watched.addresses
    assert [address for address in watched.addresses if not address.startswith(site)] == []
    # The policy was in force: the collector itself, another origin, can't be asked.
    watched.page.evaluate("address => fetch(address).catch(() => {})", deployment.collector)
    assert any("Content Security Policy" in complaint for complaint in watched.complaints)


@pytest.mark.parametrize("path", ["/local", "/indexed"])
def test_next_page_delivers_what_a_page_that_could_not_has_left(deployment, path):
    site, context = deployment.site, deployment.context
    site.collector = None
    page = context.new_page()
    with page.expect_response("**/v1/reports", timeout=_MILLISECONDS):
        page.goto(f"{site.url}{path}")
    page.close()
    assert deployment.count_stored() == 0
    site.collector = deployment.collector
    page = context.new_page()
    page.goto(f"{site.url}{path}")
    expect_delivered(page, 2)
    assert deployment.count_stored() == 2
