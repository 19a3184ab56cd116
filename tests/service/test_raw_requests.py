"""A collector never disagrees with a proxy on where a request ends, whatever bytes it gets."""

from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from programs import forked_collector
from service.raw_requests import REQUESTS, Outcome, RawRequest, outcome_of


def test_ambiguous_requests_are_refused(metrics_file, database):
    """Bytes that a proxy may end elsewhere close the connection; nothing can hide in them."""
    with forked_collector(metrics_file, database) as collector:
        address = urlsplit(collector.url)
        assert address.hostname
        assert address.port
        where = address.hostname, address.port

        def differs(request: RawRequest) -> str | None:
            found = outcome_of(where, request.data)
            allowed = {request.outcome}
            if request.outcome is Outcome.EITHER:
                allowed = {Outcome.TAKEN, Outcome.REFUSED}
            return None if found in allowed else f"{request.name}: {found}"

        with ThreadPoolExecutor(8) as threads:
            assert not list(filter(None, threads.map(differs, REQUESTS)))
