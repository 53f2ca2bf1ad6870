"""Sharding of a graph over the axes of a mesh: layouts, strategies of ops, redistributions, and the exact search."""
