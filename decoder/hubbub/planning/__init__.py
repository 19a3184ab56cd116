"""Before anything is collected: which parameters, how many reports, and what they reveal."""

from hubbub.protocol import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
