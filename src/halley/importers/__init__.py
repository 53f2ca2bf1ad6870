"""Models of others, imported: configurations of Hugging Face, ONNX graphs."""
