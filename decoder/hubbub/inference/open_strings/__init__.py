"""Unlisted strings: found prefix by prefix, tested as whole strings."""
