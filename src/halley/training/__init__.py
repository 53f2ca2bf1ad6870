"""Training of a model on a system: its kernels, costs and plans."""
