"""One population through the whole system, scored against its truth."""
