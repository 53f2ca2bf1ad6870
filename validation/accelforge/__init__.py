"""Energy-optimal mappings of AccelForge on chips of several shapes, costed by Halley action by action (docs/validation.md).

- `compare`       the mappings as trees, their accesses and energies beside the peer's, and Halley's own optimum
- `figures.json`  what accelforge 1.0.467 reported: energy, time, CPU time of the mapper, bits of every action
"""
