"""Exact methods without domain words: eliminated variables, bounds of sums, multipliers, downsets, constrained sums."""
