"""Publish what is collected in the clear: mechanisms of central differential privacy."""
