"""The engines that there are, by name: started or reached, and stopped or left at the end.

    with open_engine("spark", "spark://host:7077") as engine:
        for counts in engine.map(count_task, settings, tasks): ...

Only the package of the engine that is asked for is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hubbub.decoder.engines.interfaces import Engine
from hubbub.protocol.errors import Option, OptionError

LOCAL = "local"
ENGINES = (LOCAL, "dask", "spark")


@contextmanager
def open_engine(name: str = LOCAL, master: str | None = None) -> Iterator[Engine]:
    """Start an engine, or connect to one; stop it, or disconnect, at the end.

    Parameters
    ----------
    name : str
        One of `ENGINES`.
    master : str, optional
        The address of a Dask scheduler, or Spark's master; None: workers of this machine's own.

    Raises
    ------
    OptionError
        If there is no such engine, or it has no master.
    EngineError
        If it can't be started or reached, or its package isn't installed.
    """
    if name not in ENGINES:
        raise OptionError(Option("engine", name), f": must be one of {', '.join(ENGINES)}.")
    if name == LOCAL:
        if master is not None:
            raise OptionError(
                Option("master", master), " belongs to ", Option("engine", "dask or spark"), "."
            )
        from hubbub.decoder.engines.local import LocalEngine  # noqa: PLC0415 - only what is used

        yield LocalEngine()
        return
    if name == "dask":
        from hubbub.decoder.engines.dask import open_dask  # noqa: PLC0415 - as above

        with open_dask(master) as dask:
            yield dask
        return
    from hubbub.decoder.engines.spark import open_spark  # noqa: PLC0415 - as above

    with open_spark(master) as spark:
        yield spark
