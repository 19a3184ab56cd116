"""Where pure tasks run: this machine's threads, Dask or Spark."""

from hubbub.decoder.engines.engine import ENGINES, LOCAL, open_engine
from hubbub.decoder.engines.interfaces import Engine, Keeper, Kept

__all__ = ["ENGINES", "LOCAL", "Engine", "Keeper", "Kept", "open_engine"]
