"""Publish what is collected in the clear: mechanisms of central differential privacy."""

from hubbub.protocol import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
