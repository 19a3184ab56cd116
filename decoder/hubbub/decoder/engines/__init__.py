"""Where pure tasks run: this machine's threads, Dask or Spark."""

from hubbub.decoder.engines.engine import ENGINES, LOCAL, Engine, Keeper, Kept, open_engine

__all__ = ["ENGINES", "LOCAL", "Engine", "Keeper", "Kept", "open_engine"]
