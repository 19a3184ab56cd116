"""Estimates and findings -> terminal, CSV, JSON, Parquet, HTML, pictures, notebooks."""

from hubbub.protocol import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
