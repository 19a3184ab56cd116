"""A collector at full load for minutes: python -m evaluation.soak --minutes 5."""
