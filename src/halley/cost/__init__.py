"""Folds over a mapping tree: counting, movement, footprint, timing, energy."""
