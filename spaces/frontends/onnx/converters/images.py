"""Images: sizes made larger and smaller, windows, regions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.converters.channels import CHANNELS
from spaces.frontends.onnx.converters.convolutions import CONVOLUTIONS
from spaces.frontends.onnx.converters.pooling import POOLING
from spaces.frontends.onnx.converters.regions import REGIONS
from spaces.frontends.onnx.converters.resize import RESIZE
from spaces.frontends.onnx.converters.suppression import SUPPRESSION
from spaces.frontends.onnx.node import Convert

IMAGES: Mapping[str, Convert] = MappingProxyType(
    {**CHANNELS, **CONVOLUTIONS, **POOLING, **REGIONS, **RESIZE, **SUPPRESSION}
)
