"""Processes, sockets and signals: the parts put together as a service, and its end."""
