"""Millions of clients at once, honest and forged, that report as real clients do."""
