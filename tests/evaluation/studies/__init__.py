"""Tables that the documentation quotes, each by one command (`python -m evaluation.studies`)."""
