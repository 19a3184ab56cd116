"""Services under load: a scenario says what runs, what is sent, and what must come of it."""
