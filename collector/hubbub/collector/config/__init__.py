"""What the collector can be told, from where, and how it is printed."""
