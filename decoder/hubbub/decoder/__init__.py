"""The batch job that turns noisy reports into estimates with honest errors."""

from hubbub.protocol import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
