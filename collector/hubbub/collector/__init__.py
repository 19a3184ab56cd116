"""The service that ingests reports. The decoder uses `hubbub.storage` without the web."""

from hubbub.protocol import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
