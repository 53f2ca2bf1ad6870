"""Times of single kernels on one chip: GEMMs, streams, passes over rows; efficiencies fitted to measurements."""
