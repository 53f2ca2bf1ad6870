"""A chip on which a search takes a fifth of a second, and studies on it."""

from __future__ import annotations

CHIP = """
chip:
  name: mini
  clock: 1 GHz
  static_power: 10 mW
  levels:
    - name: dram
      memories:
        dram: {capacity: 1 GiB, read_bandwidth: 8 GB/s, write_bandwidth: 8 GB/s, latency: 10 ns,
          read_energy: 100 pJ/B, write_energy: 100 pJ/B}
    - name: core
      memories:
        buf: {capacity: 1 KiB, read_bandwidth: 32 GB/s, write_bandwidth: 32 GB/s, latency: 0 ns,
          read_energy: 1 pJ/B, write_energy: 1 pJ/B}
  engines:
    matrix:
      rows: 4
      cols: 4
      dataflow: weight-stationary
      prefetch: true
      rate: {bf16: 1}
      energy: {bf16: 1 pJ}
      reads: {input: [buf], weight: [buf], output: [buf]}
"""

SMALL = (
    CHIP
    + """
workloads:
  g: {kind: gemm, m: 4, n: 8, k: 8}
axes:
  buf.capacity: 128, 512 B
  engines.matrix.rows: 2, 4
minimise: [time, buf.capacity, macs]
"""
)
"""Four designs, each searched in a moment."""

TWO = (
    CHIP
    + """
workloads:
  g: {kind: gemm, m: 12, n: 16, k: 16}
  h: {kind: gemm, m: 4, n: 16, k: 8}
weights: {h: 3}
axes:
  engines.matrix.rows: 2, 4, 8
  buf.capacity: 256, 512, 1024 B
  dram:
    set: [dram.read_bandwidth, dram.write_bandwidth]
    values: 4, 8 GB/s
where:
  - macs <= 16 or buf.capacity >= 512 B
minimise: [time, engines.matrix.rows, buf.capacity]
"""
)
"""Sixteen designs, two workloads."""
