"""Which operators of statistics have a converter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.converters.statistics.extremes import EXTREMES
from spaces.frontends.onnx.converters.statistics.norms import NORMS
from spaces.frontends.onnx.converters.statistics.products import PRODUCTS
from spaces.frontends.onnx.converters.statistics.reductions import REDUCTIONS
from spaces.frontends.onnx.converters.statistics.running import RUNNING
from spaces.frontends.onnx.converters.statistics.softmax import SOFTMAXES
from spaces.frontends.onnx.converters.statistics.training import TRAINING
from spaces.frontends.onnx.node import Convert

STATISTICS: Mapping[str, Convert] = MappingProxyType(
    {**EXTREMES, **NORMS, **PRODUCTS, **REDUCTIONS, **RUNNING, **SOFTMAXES, **TRAINING}
)
