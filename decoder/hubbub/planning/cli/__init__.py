"""`hubbub-decoder plan` and `privacy`: options, and what they ask of the planner."""
