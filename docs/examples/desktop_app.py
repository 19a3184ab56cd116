"""A desktop app: an event loop, and a privacy page whose buttons are functions.

    python docs/examples/desktop_app.py

It reads events as lines (`home news.example.org`, `privacy`, `yes`, `no`, `forget`, `quit`), so
that it runs without a display. With a toolkit, the methods of `PrivacyPage` are what its buttons
call, on the thread that draws; all of them return text to show.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from pathlib import Path

from hubbub.client import Telemetry

METRICS = Path(__file__).with_name("metrics.toml")
ENDPOINT = os.environ.get("BROWSER_COLLECTOR", "https://telemetry.example.com")
FOLDER = Path(os.environ.get("BROWSER_HOME", "~/.local/share/browser")).expanduser()

Events = queue.SimpleQueue[str]


class PrivacyPage:
    """What the app's privacy page shows and does."""

    def __init__(self) -> None:
        self._answer = FOLDER / "telemetry-consent"
        self._telemetry = self._open()

    def record_home(self, home: str) -> None:
        """Report the home page, if the user has agreed."""
        self._telemetry.record("homepage", home)

    def question(self, home: str) -> str:
        """Return what the user should read before they agree, with their own home page."""
        preview = self._telemetry.preview("homepage", home)
        return f"{self._telemetry.explain()}\n\n{preview.words}\n\nTake part? (yes, no)"

    def answer(self, yes: bool) -> str:
        """Take the user's answer, at any time; what wasn't sent yet is deleted by a no."""
        self._save(yes)
        self._telemetry.set_consent(yes)
        disabled = self._telemetry.status().disabled
        return "Thank you." if disabled is None else f"Nothing is recorded: {disabled}."

    def forget(self) -> str:
        """Delete everything; the user may agree anew, as another client."""
        self._save(False)
        words = self._telemetry.forget()
        self._telemetry = self._open()
        return words

    def close(self) -> None:
        """Send what waits, for up to two seconds; what is left leaves at the next start."""
        self._telemetry.close()

    def _open(self) -> Telemetry:
        agreed = self._answer.exists() and self._answer.read_text(encoding="utf-8") == "yes"
        return Telemetry(METRICS, ENDPOINT, FOLDER / "telemetry", consent=agreed)

    def _save(self, yes: bool) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._answer.write_text("yes" if yes else "no", encoding="utf-8")


def run(events: Events) -> None:
    """Handle events, one after another, until the user quits."""
    page = PrivacyPage()
    home = "about:blank"
    while (event := events.get()) != "quit":
        word, _, rest = event.partition(" ")
        if word == "home":
            home = rest
            page.record_home(home)
        elif word == "privacy":
            print(page.question(home), flush=True)
        elif word in {"yes", "no"}:
            print(page.answer(word == "yes"), flush=True)
        elif word == "forget":
            print(page.forget(), flush=True)
    page.close()


def read_events(events: Events) -> None:
    """Turn lines into events; the end of input is the user's leaving."""
    for line in sys.stdin:
        events.put(line.strip())
    events.put("quit")


def main() -> None:
    """Run the app."""
    events = Events()
    threading.Thread(target=read_events, args=(events,), daemon=True).start()
    run(events)


if __name__ == "__main__":
    main()
