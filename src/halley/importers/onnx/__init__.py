"""ONNX models as networks of layers."""
