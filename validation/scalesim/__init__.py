"""Cycles and buffer accesses of systolic arrays: Halley against SCALE-Sim 3 (docs/validation.md).

`compare` holds the conventions; ``figures.csv`` what SCALE-Sim reported; ``array.yaml`` the chip around the array.
"""
