"""Measured serving: static batches, closed loops, requests, speculation."""
