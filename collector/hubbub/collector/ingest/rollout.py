"""Versions that others have declared in the shared store since this collector read its registry.

While a new registry reaches one collector after the other, clients already report what it adds. Who
doesn't know a version yet must not refuse it for good, or its reports are lost; what nobody knows
is refused. Invariant: the answer is from after the question, however many ask at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from hubbub.storage import MetricVersion, Store


class Rollout:
    """Asks the store what was declared lately, once for all who ask meanwhile.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._begun = self._answered = 0
        self._declared: frozenset[MetricVersion] = frozenset()

    async def has_any(
        self, unknown: Collection[MetricVersion], before: Collection[MetricVersion]
    ) -> bool:
        """Return whether any of some versions was declared, and hadn't been before.

        Parameters
        ----------
        unknown : collection of MetricVersion
        before : collection of MetricVersion
            What was declared when this collector read its registry: what it doesn't take of these
            it doesn't want any more.

        Raises
        ------
        StoreError
            If the store can't be read.
        """
        arrived = self._begun
        async with self._turn:
            # Questions are numbered: one from after the arrival may have been answered meanwhile.
            if self._answered <= arrived:
                self._begun += 1
                declared = await self._store.declared()
                self._declared = frozenset(MetricVersion(it.metric, it.version) for it in declared)
                self._answered = self._begun
        return not (self._declared & set(unknown)) <= set(before)
