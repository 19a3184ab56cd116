"""Which key a request bears, and whether that key may still send: 401 and 429.

Without keys in the configuration, everyone may send as much as the gate lets through.
"""

from __future__ import annotations

import datetime as dt
import math

from hubbub.collector.access.auth import AuthError, IngestGate
from hubbub.collector.access.quotas import Quotas
from hubbub.collector.config.settings import Settings
from hubbub.collector.errors import RefusalError


class Admission:
    """The ingest keys and quotas of one worker process."""

    def __init__(self, settings: Settings) -> None:
        self._keys = settings.ingest_keys
        self._gate = IngestGate(settings.ingest_keys, anonymous=settings.anonymous)
        self._quotas = Quotas(settings.ingest_keys, settings.workers)

    def key(self, authorization: str | None) -> str | None:
        """Return the name of the key in an Authorization header, or None.

        Raises
        ------
        RefusalError
            401, if there is no such key or none was given where one is needed.
        """
        if not self._keys:
            return None
        try:
            return self._gate.admit(authorization, dt.datetime.now(dt.UTC).date())
        except AuthError as error:
            raise RefusalError(
                error.status,
                "unauthorized",
                error.detail,
                headers={"WWW-Authenticate": error.www_authenticate},
            ) from None

    def spend(self, key: str | None, reports: int) -> None:
        """Take reports from a key's quota.

        Raises
        ------
        RefusalError
            429 with the seconds to wait, or 413 if no wait would help.
        """
        wait = self._quotas.take(key, reports)
        if math.isinf(wait):
            burst = self._keys[key or ""].burst
            detail = f"reports: {reports}; this key may send at most {burst} at once"
            raise RefusalError(413, "too_large", detail)
        if wait:
            detail = "quota of this key is used up; see Retry-After"
            raise RefusalError(429, "quota", detail, retry_after=wait)
