"""Times of the kernels of GPU libraries: physical models with few parameters, fitted to measured tables, with intervals.

`families` lists the kernels (GEMM, attention, experts, ...). `fit` fits their parameters, `times` evaluates a fit. Parameters are
shares of the chip's data sheet or fixed times, so that a fit carries over to a chip of kin. Options (splits of a contraction,
rows of a tile, ...) are properties of the library.
"""
