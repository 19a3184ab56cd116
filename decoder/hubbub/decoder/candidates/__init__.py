"""Candidate strings by the million: read, hashed, kept small, and summed over."""
