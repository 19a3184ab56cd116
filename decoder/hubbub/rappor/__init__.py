"""google/rappor's files: counts, parameters, maps, and reports of several variables."""
