"""Reports on serving."""
