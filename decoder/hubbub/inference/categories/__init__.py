"""Enums, booleans and ordinals, whose values the registry lists."""
