"""ONNX graphs into Relax: sizes are calculated while a graph is imported, in its own symbols."""
