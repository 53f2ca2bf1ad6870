"""Fits of library kernels against measured tables."""
