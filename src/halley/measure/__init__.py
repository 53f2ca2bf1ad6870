"""Kernels timed on the user's own machine, for the fits of `halley calibrate`. Needs PyTorch to run, not to import."""
