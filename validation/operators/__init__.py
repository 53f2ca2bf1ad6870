"""Measured operators on A100 and H20 against the fitted efficiency of a chip."""
