"""Numbers between two ends, of which a mean is estimated instead of a distribution."""
