"""Local estimates and an opted-in group's central release -> one estimate of each string."""
