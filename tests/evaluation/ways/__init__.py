"""The same work done in several ways, each in a process of its own: CPU, memory, equal results."""
