"""Types: conversions between them, and quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.node import Convert

CONVERSIONS: Mapping[str, Convert] = MappingProxyType({})
