"""What the command line named -> `Provenance`: settings, and a digest of every input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hubbub.client.metrics import Metric
from hubbub.decoder.cli.inputs import Input
from hubbub.decoder.cli.usage import Given, Wanted
from hubbub.decoder.output.provenance import (
    Provenance,
    Source,
    canonical,
    counts_source,
    digest,
    file_source,
    installed_versions,
    named,
    strings_source,
)


def provenance_of(
    given: Given,
    wanted: Wanted,
    metric: Metric | None,
    taken: Input,
    *,
    method: str,
    strings: Sequence[str] = (),
) -> Provenance:
    """Return where a result comes from.

    Parameters
    ----------
    given : Given
    wanted : Wanted
    metric : Metric, optional
        None if there are only counts.
    taken : Input
    method : str
        How shares were estimated.
    strings : sequence of str
        The candidates; their digest is taken if they came through a pipe, which is read only once.

    Raises
    ------
    OSError
        If a file that was read is gone.
    """
    parameters = named(taken.params)
    return Provenance(
        versions=installed_versions(),
        metric=Path(metric.name if metric else given.params or "").name,
        metric_version=metric.version if metric and given.metric else None,
        parameters=parameters,
        parameters_sha256=digest(canonical(parameters)),
        settings={
            "alpha": f"{wanted.alpha:g}",
            "correction": wanted.correction,
            "method": method,
            "min_reports": f"{wanted.min_reports}",
        },
        days=_days(given),
        sources=(
            *_candidates(given, strings),
            *_files(given),
            counts_source("counts", taken.counts),
        ),
    )


def _candidates(given: Given, strings: Sequence[str]) -> tuple[Source, ...]:
    if given.candidates is None:
        return ()
    if Path(given.candidates).is_file():
        return (file_source("candidates", given.candidates),)
    return (strings_source("candidates", strings),)


def _files(given: Given) -> list[Source]:
    named_files = (("params", given.params), ("map", given.map), ("counts file", given.counts),
                   ("reports", given.reports))  # fmt: skip
    return [file_source(role, path) for role, path in named_files if path is not None]


def _days(given: Given) -> str:
    if given.metric is None or given.reports is not None:
        return "not known"
    since = f"{given.since:%Y-%m-%d}" if given.since else "the first"
    until = f"{given.until:%Y-%m-%d}" if given.until else "the last"
    return f"{since} to {until}"
