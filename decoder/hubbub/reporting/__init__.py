"""Estimates and findings -> terminal, CSV, JSON, Parquet, HTML, pictures, notebooks."""
