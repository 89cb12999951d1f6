"""Operators that onnxruntime contributed to ONNX files, as what they are made of."""
