"""Measured attention on A100, forward and backward: how much faster the fused kernels are (docs/validation.md).

- `graphs`   the operations of the kernels
- `plans`    their mapping trees
- `gpu`      the chip with two fractions that are fitted on other measured kernels
- `compare`  predicted and measured speed-ups

The table of measurements is not part of this repository: name the folder that has ``measured_ops.csv``.
"""
