"""Spatial chips: kernels side by side on compute tiles, and the best partitions of a graph."""
