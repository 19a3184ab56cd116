"""Candidates by the hundred million: tasks read, hash and test them; little memory is taken."""
