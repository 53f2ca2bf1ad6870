"""Exact search in a group of fused ops."""
