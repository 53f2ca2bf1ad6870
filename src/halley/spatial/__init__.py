"""Spatial chips: kernels that run concurrently on compute tiles, and the best partitions of a graph."""
