"""A collector at full load for minutes: python -m soak --minutes 5."""
