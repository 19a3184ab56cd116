"""The detected strings from day to day, and where their shares changed."""
