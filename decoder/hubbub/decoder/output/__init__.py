"""Results as people and programs want them, and where they come from."""
