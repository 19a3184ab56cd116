"""What all methods share: the law of an absent string, error rates, intervals after selection."""
