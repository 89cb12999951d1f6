"""Statistics: norms, reductions, softmax and attention."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.node import Convert

STATISTICS: Mapping[str, Convert] = MappingProxyType({})
