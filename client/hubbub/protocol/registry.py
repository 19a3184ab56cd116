"""The metrics of an application as their owners registered them: metrics.toml -> `Registry`.

Client, collector and decoder read this one file. Invariant: what a metric's reports mean never
changes under the same version, because reports drawn in different ways can't be told apart
afterwards; `check_compatible` is the guard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hubbub.protocol.errors import MetricError, UnknownMetricError
from hubbub.protocol.metrics import Metric

if TYPE_CHECKING:
    from pathlib import Path


class Registry(Mapping[str, Metric]):
    """The metrics of one application, by name; read-only.

    Parameters
    ----------
    application : str
    metrics : mapping of str to Metric
    lifetime_epsilon : float, optional
        What a client may spend in its life, over all metrics; None: no bound but `max_values`.
    """

    __slots__ = ("_metrics", "application", "lifetime_epsilon")

    def __init__(
        self,
        application: str,
        metrics: Mapping[str, Metric],
        lifetime_epsilon: float | None = None,
    ) -> None:
        self.application = application
        self.lifetime_epsilon = lifetime_epsilon
        self._metrics = dict(metrics)

    @classmethod
    def load(cls, path: str | Path) -> Registry:
        """Read metrics.toml.

        Raises
        ------
        MetricError
            If the file can't be read, isn't TOML, or an entry is wrong (the message says where).
        """
        from pathlib import Path

        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MetricError(f"{path}: can't be read as UTF-8 text: {error}") from error
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str) -> Registry:
        """Read a registry from the text of a metrics.toml (raises as `load`)."""
        from hubbub.protocol.registration import read_registry

        application, metrics, lifetime_epsilon = read_registry(text)
        return cls(application, metrics, lifetime_epsilon)

    def __getitem__(self, name: str) -> Metric:
        try:
            return self._metrics[name]
        except KeyError:
            known = ", ".join(sorted(self._metrics))
            raise UnknownMetricError(f"metric {name!r}: must be one of: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)


def check_compatible(old: Registry, new: Registry) -> None:
    """Refuse a registry that changes what an existing version means.

    Raises
    ------
    MetricError
        If the application differs, a version goes down, a definition changed without a new one,
        or `lifetime_epsilon` leaves less for changed answers than before (what clients spent on
        these already would then decide whether they answer new questions).
    """
    if old.application != new.application:
        raise MetricError(
            f"application = {new.application!r}: must stay {old.application!r}, because every "
            "client's permanent responses depend on it"
        )
    if old.lifetime_epsilon is not None and new.lifetime_epsilon is not None:
        still = {(metric.name, metric.version) for metric in new.values()}
        gone = [m.reserve for m in old.values() if (m.name, m.version) not in still]
        needed = math.fsum([*gone, *(m.reserve for m in new.values()), old.lifetime_epsilon])
        needed -= math.fsum(m.reserve for m in old.values())
        if new.lifetime_epsilon < needed * (1 - 1e-9):
            raise MetricError(
                f"lifetime_epsilon = {new.lifetime_epsilon}: must be at least {needed:.6g}, which "
                "adds the price of each new metric and version, so that clients' silence doesn't "
                "depend on how often their answers changed"
            )
    for name in old.keys() & new.keys():
        before, after = old[name], new[name]
        if after.version < before.version:
            raise MetricError(
                f"metrics.{name}.version = {after.version}: must be at least {before.version}"
            )
        if after.version == before.version and after.definition != before.definition:
            raise MetricError(
                f"metrics.{name}: changed from {before.definition} to {after.definition}; "
                f"version must be greater than {before.version}"
            )
