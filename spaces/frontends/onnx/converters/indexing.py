"""Operators that choose elements by their place or their order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.converters.slicing import SLICING
from spaces.frontends.onnx.node import Convert

INDEXING: Mapping[str, Convert] = MappingProxyType({**SLICING})
