"""Audits that measure a claim over many simulated clients, beside the claim itself."""
