"""Chip files and fitted chips."""
