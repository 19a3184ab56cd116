"""A wiki that people host themselves: what the server examples share.

The client, in the sense of the privacy promise, is the *installation*: it has the secret and the
account, and its operator is asked. Nothing here is about visitors. Their values would need a
secret and an account for each of them, on their own devices.

    python wiki.py    # what is asked, an example of what would be sent, and the operator's answer
"""

from __future__ import annotations

import html
import json
import os
import traceback
from pathlib import Path

from hubbub.client import AsyncTelemetry, Telemetry

METRICS = Path(__file__).with_name("wiki.toml")
ENDPOINT = os.environ.get("WIKI_COLLECTOR", "https://telemetry.example.com")
FOLDER = Path(os.environ.get("WIKI_HOME", "~/.local/share/wiki")).expanduser()
STATE = FOLDER / "telemetry"
STORAGE = "sqlite"
_ANSWER = FOLDER / "telemetry-consent"


def agreed() -> bool:
    """Return the operator's answer; nobody has agreed who wasn't asked."""
    return _ANSWER.exists() and _ANSWER.read_text(encoding="utf-8") == "yes"


def save_answer(yes: bool) -> None:
    """Keep the operator's answer."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    _ANSWER.write_text("yes" if yes else "no", encoding="utf-8")


def question(telemetry: Telemetry | AsyncTelemetry) -> str:
    """Return what an operator should read before they agree."""
    return f"{telemetry.explain()}\n\n{telemetry.preview('storage', STORAGE).words}"


def render(source: str) -> str:
    """Turn a page's source, JSON with a title and a text, into HTML."""
    page = json.loads(source)
    return f"<h1>{html.escape(page['title'])}</h1><p>{html.escape(page['text'])}</p>"


def failing_module(error: BaseException) -> str:
    """Return the module in which an error was raised."""
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals["__name__"])


def main() -> None:
    """Ask the operator."""
    telemetry = Telemetry(METRICS, ENDPOINT, STATE, consent=False)
    print(question(telemetry))
    yes = input("\nTake part? [y/N] ").strip().lower() in {"y", "yes"}
    save_answer(yes)
    print("Thank you." if yes else "Nothing will be sent.", "Restart the wiki for this to hold.")


if __name__ == "__main__":
    main()
