"""Counts or reports -> shares with errors: pure mathematics, without files, options or results."""

from hubbub.protocol import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
