"""Millions of clients at once, honest and forged, with the real client's law."""
