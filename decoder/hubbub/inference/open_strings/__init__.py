"""Strings that nobody listed: found prefix by prefix, tested as whole strings."""
