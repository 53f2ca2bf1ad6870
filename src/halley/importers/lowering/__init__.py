"""Nodes of networks as graphs in Halley's notation; operators of PyTorch become those of ONNX first."""
