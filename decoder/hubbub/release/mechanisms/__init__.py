"""Mechanisms: pure functions of data in memory and a budget; none knows of ledgers or files."""
