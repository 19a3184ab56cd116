"""Processes, sockets and signals: how the parts become a service, and how it ends."""
