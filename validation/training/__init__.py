"""Measured iterations of training on A100 and B200 against plans of the same settings, with and without the time of the host."""
