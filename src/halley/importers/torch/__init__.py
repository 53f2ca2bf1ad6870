"""PyTorch programs as networks of layers."""
