"""Commands about single kernels."""
