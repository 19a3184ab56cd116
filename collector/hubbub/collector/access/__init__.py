"""Keys and tokens, quotas, and the bound on what is under way."""
