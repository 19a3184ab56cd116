"""Processes that export a day again and again; importable there, unlike the tests' own modules."""

import asyncio
from collections import Counter
from pathlib import Path

from hubbub.storage import StoreError, export_partitions, open_store, plan_export

OVERTAKEN, DONE = "overtaken", "done"
_OVERTAKEN = "another export wrote this day at the same time"


def export_again_and_again(store: str, address: str, rounds: int, enough: Path) -> Counter[str]:
    """Export a store so often at least, until it went well once and a file is there.

    Returns how often it went well, or what was wrong.
    """

    async def export() -> Counter[str]:
        outcomes = Counter[str]()
        async with open_store(store, create=False) as opened:
            plan = await plan_export(opened)
            while outcomes.total() < rounds or not outcomes[DONE] or not enough.exists():
                try:
                    async for _written in export_partitions(opened, address, plan):
                        pass
                    outcomes[DONE] += 1
                except (StoreError, FileNotFoundError) as error:
                    outcomes[OVERTAKEN if _OVERTAKEN in str(error) else str(error)] += 1
        return outcomes

    return asyncio.run(export())
