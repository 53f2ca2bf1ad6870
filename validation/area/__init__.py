"""Areas of dies: Halley against published ones (docs/validation.md).

``dies.yaml`` has what is built on each die, and its area; ``fit.py`` fits the factors of `halley.silicon.processes` to them.
"""
