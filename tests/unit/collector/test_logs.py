"""What the service says: JSON lines without times, secrets or anything of a request."""

import json
import subprocess
import sys
from typing import Any

import pytest

from hubbub.collector import generate_secret

SECONDS = 60.0
BEGIN = """
import asyncio, logging, sys, warnings
from hubbub.collector.operations.logs import configure, lifecycle as log
"""
TASK_THAT_FAILS = """
async def fail(): raise ValueError("zaphod")
async def main():
    asyncio.create_task(fail())
    await asyncio.sleep(0)
asyncio.run(main())
"""
CALLBACK_THAT_FAILS = """
def fail(text): raise ValueError(text)
async def main():
    asyncio.get_running_loop().call_soon(fail, "zaphod")
    await asyncio.sleep(0)
asyncio.run(main())
"""


def said_by(program: str, configure: str = "configure()") -> list[dict[str, Any]]:
    """Run a program with logging of ours; return its lines, each of which must be JSON."""
    done = subprocess.run(
        [sys.executable, "-c", f"{BEGIN}\n{configure}\n{program}"],
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return [json.loads(line, parse_constant=_refuse) for line in done.stderr.splitlines()]


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def test_line_has_event_level_and_keys():
    said = said_by(
        "log.info(b'bytes', a=float('nan'), b=float('-inf'), c={'x': 1}, d=None, e=(1, 't'), f=2)\n"
        "logging.getLogger('hubbub.collector').error('%s of %d', 'one', 3)"
    )
    odd = {"a": "nan", "b": "-inf", "c": "{'x': 1}", "d": None, "e": ["1", "t"], "f": 2}
    assert said == [
        {"event": "b'bytes'", "level": "info", **odd},
        {"event": "one of 3", "level": "error"},
    ]


def test_only_important_news_is_announced():
    program = "for level in ('debug', 'info', 'warning', 'error'): getattr(log, level)(level)"
    assert len(said_by(program)) == 3
    assert len(said_by(program, "configure('error')")) == 1


def test_other_libraries_are_heard_from_warnings_on_only():
    """Below that SQLAlchemy would quote statements with their parameters."""
    said = said_by(
        "for name in ('sqlalchemy.engine', 'aiosqlite', 'other'):\n"
        "    logging.getLogger(name).info('INSERT'); logging.getLogger(name).debug('INSERT')\n"
        "logging.getLogger('other').warning('careful')",
        "logging.getLogger('sqlalchemy.engine').setLevel('DEBUG'); configure('debug')",
    )
    assert said == [{"event": "careful", "level": "warning", "logger": "other"}]


@pytest.mark.parametrize("text", ["a\nb\r\nc", "\x00\x1b[31m\x7f\x85", "\u2028\u2029", "\udcff"])
def test_control_characters_do_not_break_the_line(text):
    program = f"text = {text!a}\nlog.info(text, key=text)"
    program += "\nlogging.getLogger('hubbub.x').info(text)"
    first, second = said_by(program)
    assert first == {"event": text, "level": "info", "key": text}
    assert second["event"] == text


def test_lines_are_bounded():
    (line,) = said_by("log.info('x' * 10**6, long='y' * 10**6, many=list(range(10**5)))")
    assert len(json.dumps(line)) < 10_000


def test_exceptions_are_logged_without_their_text():
    (line,) = said_by(
        "def parse(): raise ValueError('zaphod')\n"
        "try: parse()\nexcept ValueError: log.exception('failed')"
    )
    assert (line["event"], line["exception"]) == ("failed", "ValueError")
    assert line["frames"][-1].endswith(" parse")
    assert "zaphod" not in json.dumps(line)


@pytest.mark.parametrize(
    ("program", "event"),
    [
        (
            "logging.getLogger('aiohttp.server').error('Error from %s', 'zaphod', exc_info=True)",
            "trouble in the HTTP library",
        ),
        (TASK_THAT_FAILS, "Task exception was never retrieved"),
        (CALLBACK_THAT_FAILS, "Exception in callback fail"),
        (
            "logging.getLogger('sqlalchemy.pool').error('lost\\nINSERT zaphod')",
            "lost",
        ),
    ],
)
def test_other_libraries_are_cut_before_they_quote(program, event):
    (line,) = said_by(program)
    assert line["event"] == event
    assert "zaphod" not in json.dumps(line)


def test_warnings_become_lines():
    (line,) = said_by("warnings.simplefilter('always'); warnings.warn('old\\nzaphod')")
    assert line["event"].endswith("UserWarning: old")
    assert line["logger"] == "py.warnings"


def test_known_secrets_are_masked_wherever_they_turn_up():
    secret, _hash = generate_secret("admin")
    url = "postgresql://zaphod:beeblebrox@db/hubbub"
    said = said_by(
        f"secret, url = {secret!r}, {url!r}\n"
        "log.info(secret + url, key=secret, url=[url], other={url: secret}, **{secret: 1})\n"
        "logging.getLogger('other').error('%s %s', secret, url)"
    )
    assert len(said) == 2
    assert secret[10:] not in json.dumps(said)
    assert "beeblebrox" not in json.dumps(said)
    assert "hub_admin_***" in said[0]["event"]


def test_a_log_line_that_cannot_be_made_is_dropped_silently():
    said = said_by("logging.getLogger('hubbub').error('%d', 'zaphod'); log.info('on')")
    assert said == [{"event": "on", "level": "info"}]
