"""Who is let in, and how much: keys, quotas, and the bound on what is under way."""
