"""For operators: logs, metrics, the page and the admin routes."""
