"""Which operators have a converter here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.converters.clip_and_pad import CLIP_AND_PAD
from spaces.frontends.onnx.converters.conversions import CONVERSIONS
from spaces.frontends.onnx.converters.elementwise import ELEMENTWISE
from spaces.frontends.onnx.converters.images.operators import IMAGES
from spaces.frontends.onnx.converters.indexing import INDEXING
from spaces.frontends.onnx.converters.quantized import QUANTIZED
from spaces.frontends.onnx.converters.recurrent.layers import RECURRENT
from spaces.frontends.onnx.converters.shape_operators import SHAPE_OPERATORS
from spaces.frontends.onnx.converters.statistics import STATISTICS
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
    }
)
"""By operator. What one gives no expression for is for TVM's importer."""
