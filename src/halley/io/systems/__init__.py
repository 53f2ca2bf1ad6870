"""System files and grids of systems."""
