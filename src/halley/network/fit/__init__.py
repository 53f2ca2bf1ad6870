"""Fits of a network to measured collectives."""
