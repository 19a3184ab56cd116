"""Bit counts -> a model -> estimates, errors and tests of every candidate."""
