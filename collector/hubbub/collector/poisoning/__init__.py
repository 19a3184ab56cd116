"""Statistics that forged reports may fail and honest ones pass; pure functions."""
