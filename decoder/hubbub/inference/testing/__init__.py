"""What all methods share: an absent string's score, error rates, intervals after selection."""
