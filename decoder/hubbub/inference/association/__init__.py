"""Several values of one client, each reported by itself -> the table of what goes together."""
