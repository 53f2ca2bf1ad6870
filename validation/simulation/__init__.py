"""Formula against event simulation: random mappings, the deviation of the predicted time, a figure (docs/simulation.md)."""
