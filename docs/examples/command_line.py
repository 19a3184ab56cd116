"""A command-line tool: asks once, records, and is gone.

    python docs/examples/command_line.py add "Buy milk"
    python docs/examples/command_line.py telemetry        # what is asked, sent and spent
    python docs/examples/command_line.py telemetry off    # or on, or forget

Reports leave at the end of a command. If there is no network, they stay on disk and leave with a
later one.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from hubbub.client import Telemetry, consent_refusal

METRICS = Path(__file__).with_name("notes.toml")
ENDPOINT = os.environ.get("NOTES_COLLECTOR", "https://telemetry.example.com")
FOLDER = Path(os.environ.get("NOTES_HOME", "~/.local/share/notes")).expanduser()
_ANSWER = FOLDER / "telemetry-consent"
_NOTES = FOLDER / "notes.txt"
_PATIENCE = 0.5  # seconds at the end of a command


def editor() -> str:
    """Return the user's editor, without its path and options."""
    return Path((os.environ.get("EDITOR") or "none").split()[0]).name


def describe(telemetry: Telemetry) -> str:
    """Return what a user should read before they agree."""
    return f"{telemetry.explain()}\n\n{telemetry.preview('editor', editor()).words}"


def save_answer(yes: bool) -> None:
    """Keep the user's answer."""
    _ANSWER.write_text("yes" if yes else "no", encoding="utf-8")


def agreed(telemetry: Telemetry) -> bool:
    """Return the user's answer; ask for it once, if there is somebody to ask."""
    if not _ANSWER.exists():
        if consent_refusal(True, os.environ) or not sys.stdin.isatty():
            return False
        print(describe(telemetry))
        save_answer(input("\nTake part? [y/N] ").strip().lower() in {"y", "yes"})
    return _ANSWER.read_text(encoding="utf-8") == "yes"


def add(text: str) -> None:
    """Write a note."""
    with _NOTES.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def show_notes() -> None:
    """Print all notes."""
    print(_NOTES.read_text(encoding="utf-8") if _NOTES.exists() else "No notes.\n", end="")


def settle(telemetry: Telemetry, choice: str) -> None:
    """Carry out `telemetry show|on|off|forget`."""
    if choice == "show":
        print(describe(telemetry))
    elif choice == "forget":
        save_answer(False)
        print(telemetry.forget())
    else:
        save_answer(choice == "on")
        telemetry.set_consent(choice == "on")  # what wasn't sent yet is deleted by "off"
        reason = telemetry.status().disabled
        print("Thank you." if reason is None else f"Nothing is recorded: {reason}.")


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(description="Keep notes.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("add").add_argument("text")
    commands.add_parser("list")
    choices = commands.add_parser("telemetry")
    choices.add_argument(
        "choice", nargs="?", default="show", choices=["show", "on", "off", "forget"]
    )
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with Telemetry(METRICS, ENDPOINT, FOLDER / "telemetry", consent=False) as telemetry:
        telemetry.set_consent(agreed(telemetry))
        if options.command == "telemetry":
            settle(telemetry, options.choice)
        else:
            telemetry.record("editor", editor())
            telemetry.record("command", options.command)
            add(options.text) if options.command == "add" else show_notes()
        telemetry.close(_PATIENCE)  # leaving the context would wait for up to two seconds


if __name__ == "__main__":
    main()
