"""Processes that mix a store's days, and are frozen or killed in the midst of it."""

import signal
import subprocess
import sys

_MIXER = """
import asyncio, datetime, os, sys
import sqlalchemy as sa
from hubbub.storage import open_store, segments

url, today, sent = sys.argv[1:]
segments.SMALL = 8

def send(*_):
    os.kill(os.getpid(), int(sent))

async def mix():
    async with open_store(url, create=True) as store:
        sa.event.listen(store.database.writing.sync_engine, "commit", send)
        await store.reshuffle(datetime.date.fromisoformat(today))

asyncio.run(mix())
"""


def start_mixer(url: str, today: str, sent: signal.Signals) -> subprocess.Popen[bytes]:
    """Mix, in segments of 8 reports; send itself a signal before its first commit."""
    command = [sys.executable, "-c", _MIXER, url, today, str(sent.value)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)
