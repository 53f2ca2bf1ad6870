"""Commands about serving."""
