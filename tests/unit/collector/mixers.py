"""Processes that mix a store's days, and are frozen or killed in the midst of it."""

import signal
import subprocess
import sys

_MIXER = """
import asyncio, datetime, os, sys
import sqlalchemy as sa
from hubbub.storage import open_store, reshuffling

url, today, moment, sent, times = sys.argv[1:]
reshuffling.REPORTS_OF_MIXED = 8
left = int(times)

def send(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), int(sent))
    return False

async def mix():
    async with open_store(url, create=True) as store:
        store.database.bytes_at_once = 64 * 18
        if moment == "before a commit":
            sa.event.listen(store.database.writing.sync_engine, "commit", send)
            await store.reshuffle(datetime.date.fromisoformat(today))
        else:
            await store.reshuffle(datetime.date.fromisoformat(today), send)

asyncio.run(mix())
"""


def start_mixer(
    url: str, today: str, moment: str, sent: signal.Signals, times: int
) -> subprocess.Popen[bytes]:
    """Mix in many rounds, by 8 segments of 8 reports, and send itself a signal at some moment.

    Parameters
    ----------
    moment : str
        "between groups" or "before a commit".
    times : int
        At which of these moments.
    """
    command = [sys.executable, "-c", _MIXER, url, today, moment, str(sent.value), str(times)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)
