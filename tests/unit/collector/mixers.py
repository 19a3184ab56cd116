"""Processes that mix a store's days, and are frozen or killed in the midst of it."""

import signal
import subprocess
import sys

_MIXER = """
import asyncio, datetime, os, sys
import sqlalchemy as sa
from hubbub.storage import mixing, open_store

url, today, sent, times = sys.argv[1:]
mixing.SMALL = 8
left = int(times)

def send(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), int(sent))

async def mix():
    async with open_store(url, create=True) as store:
        sa.event.listen(store.database.writing.sync_engine, "commit", send)
        await store.reshuffle(datetime.date.fromisoformat(today))

asyncio.run(mix())
"""


def start_mixer(url: str, today: str, sent: signal.Signals, times: int) -> subprocess.Popen[bytes]:
    """Mix, in segments of 8 reports; send itself a signal before its so manieth commit."""
    command = [sys.executable, "-c", _MIXER, url, today, str(sent.value), str(times)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)
