"""Images: sizes made larger and smaller, windows, regions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.converters.images.channels import CHANNELS
from spaces.frontends.onnx.converters.images.convolutions import CONVOLUTIONS
from spaces.frontends.onnx.converters.images.pooling import POOLING
from spaces.frontends.onnx.converters.images.regions import REGIONS
from spaces.frontends.onnx.converters.images.resize import RESIZE
from spaces.frontends.onnx.converters.images.suppression import SUPPRESSION
from spaces.frontends.onnx.node import Convert

IMAGES: Mapping[str, Convert] = MappingProxyType(
    {**CHANNELS, **CONVOLUTIONS, **POOLING, **REGIONS, **RESIZE, **SUPPRESSION}
)
