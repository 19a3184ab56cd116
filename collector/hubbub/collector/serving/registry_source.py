"""The registry file of a running service, which may be read again."""

from __future__ import annotations

from pathlib import Path

from hubbub.protocol.registry import Registry, check_compatible


class RegistrySource:
    """A registry file and what it held when it was last in order.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    current : Registry
        Set it to what `read` returned, once that is in force.

    Raises
    ------
    MetricError
        If the file is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.current = Registry.load(path)

    def read(self) -> Registry:
        """Read the file again.

        Raises
        ------
        MetricError
            If the file is wrong, or changes what an existing version means.
        """
        registry = Registry.load(self._path)
        check_compatible(self.current, registry)
        return registry
