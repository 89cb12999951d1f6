"""Converters of operators of ONNX into expressions of Relax, and which operators have one."""
