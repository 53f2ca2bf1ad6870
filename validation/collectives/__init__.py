"""Fitted communication libraries against measured collectives."""
