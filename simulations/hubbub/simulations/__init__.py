"""Whole populations with known truth."""
