"""Chromium, as Debian packages it, without anything that would reach beyond this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from browser.histories import History, running_history

_CHROMIUM = "/usr/bin/chromium"
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_MILLISECONDS = 60_000


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Start the browser once."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_CHROMIUM, args=_ARGUMENTS, timeout=_MILLISECONDS
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def history(tmp_path_factory) -> Iterator[History]:
    """Run a collector with two weeks of history."""
    folder = tmp_path_factory.mktemp("history")
    with running_history(folder, f"sqlite:///{folder / 'hubbub.db'}") as running:
        yield running


@pytest.fixture(scope="session")
def screenshots(request) -> Path:
    """Return the folder for pictures that people may look at."""
    folder = request.config.rootpath / "out" / "test-browser"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
