"""What operators see: logs, metrics, the page and the admin routes."""
