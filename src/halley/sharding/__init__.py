"""Sharding of a graph over the axes of a mesh: layouts, strategies per op, the collectives between them, the exact search."""
