"""Statistics: norms, reductions, softmax and attention."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.converters.extremes import EXTREMES
from spaces.frontends.onnx.converters.norms import NORMS
from spaces.frontends.onnx.converters.products import PRODUCTS
from spaces.frontends.onnx.converters.reductions import REDUCTIONS
from spaces.frontends.onnx.converters.running import RUNNING
from spaces.frontends.onnx.converters.softmax import SOFTMAXES
from spaces.frontends.onnx.converters.training import TRAINING
from spaces.frontends.onnx.node import Convert

STATISTICS: Mapping[str, Convert] = MappingProxyType(
    {**EXTREMES, **NORMS, **PRODUCTS, **REDUCTIONS, **RUNNING, **SOFTMAXES, **TRAINING}
)
