"""Programs of `torch.export`: read, and imported by TVM or by way of ONNX."""
