"""Cycles of GEMMs on a 16 x 16 array in RTL simulation, from TileFlow's published artefact (docs/validation.md).

The table of the runs is not part of this repository: name the folder that has ``rtl/rtl_single_gemm_16x16.csv``.
"""
