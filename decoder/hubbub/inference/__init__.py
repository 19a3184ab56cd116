"""Counts or reports -> shares with errors: pure mathematics, without files, options or results."""
