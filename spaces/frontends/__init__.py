"""Models as users have them: ONNX, PyTorch, Python functions."""
