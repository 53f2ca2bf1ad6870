"""Row reductions and matrix engine of a mesh of tiles: Halley against cycles in RTL (docs/validation.md).

``figures.csv`` has the cycles and where they are from; ``tile.yaml`` the chip, and which of its numbers were fitted.
"""
