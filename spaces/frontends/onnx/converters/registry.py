"""Which operators have a converter here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.converters.elementwise.conversions import CONVERSIONS
from spaces.frontends.onnx.converters.elementwise.quantized import QUANTIZED
from spaces.frontends.onnx.converters.elementwise.table import ELEMENTWISE
from spaces.frontends.onnx.converters.images.clip_and_pad import CLIP_AND_PAD
from spaces.frontends.onnx.converters.images.table import IMAGES
from spaces.frontends.onnx.converters.indexing.shape_operators import SHAPE_OPERATORS
from spaces.frontends.onnx.converters.indexing.table import INDEXING
from spaces.frontends.onnx.converters.indexing.transposes import TRANSPOSES
from spaces.frontends.onnx.converters.recurrent.layers import RECURRENT
from spaces.frontends.onnx.converters.statistics.table import STATISTICS
from spaces.frontends.onnx.node import Convert

CONVERTERS: Mapping[str, Convert] = MappingProxyType(
    {
        **CLIP_AND_PAD,
        **CONVERSIONS,
        **ELEMENTWISE,
        **IMAGES,
        **INDEXING,
        **QUANTIZED,
        **RECURRENT,
        **SHAPE_OPERATORS,
        **STATISTICS,
        **TRANSPOSES,
    }
)
"""By operator. What one gives no expression for is for TVM's importer."""
