"""What operators see: logs, numbers, the page and the admin routes."""
