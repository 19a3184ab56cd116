"""Shared by all methods: an absent string's score, error rates, intervals after selection."""
