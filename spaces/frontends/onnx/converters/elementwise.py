"""Operators on single elements: arithmetic, comparisons, activations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.node import Convert

ELEMENTWISE: Mapping[str, Convert] = MappingProxyType({})
