"""Who computes what a graph of ONNX means: onnxruntime, or ONNX's own evaluator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spaces.import_check.bounds import types_in
from spaces.import_check.unsigned_weights import drop_signs
from tuner.errors import first_line

Array = npt.NDArray[Any]
RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"}
    | {"RandomUniform", "RandomUniformLike"}
)
"""Operators of ONNX that draw at random."""
_WRONG_BELOW = MappingProxyType(
    {"LRN": math.inf, "Softmax": 13, "LogSoftmax": 13, "Hardmax": 13},
)
"""What ONNX's evaluator computes wrongly, in versions before that: for `LRN` it takes the number of
images for that of channels, and the others looked along several axes once. It rounds what `Erf`
gives to float32."""


class CannotRun(Exception):
    """A source cannot be run, or not on these inputs; in one line."""


class Source(Protocol):
    """A model as others compute it."""

    @property
    def name(self) -> str:
        """Of the program that computes, with its version."""

    def outputs(self, feeds: Sequence[Array]) -> list[Array]:
        """What it gives for inputs, in the order of the model's.

        Raises:
            CannotRun: it fails on these.
        """


def onnx_source(model: Any, names: Sequence[str]) -> Source:
    """Who computes a model of ONNX: onnxruntime where it takes it, else ONNX's evaluator.

    Args:
        model: a file or a protobuf.
        names: of its inputs.

    Raises:
        CannotRun: neither takes it.
    """
    try:
        return _Onnxruntime(model, names)
    except CannotRun as refused:
        try:
            return _Evaluator(model, names)
        except CannotRun as error:
            raise CannotRun(f"{refused}; {error}") from error


class _Onnxruntime:
    """onnxruntime without its optimisations, on one thread; it adds up bytes in full."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise CannotRun("onnxruntime is not installed") from error
        self.name = f"onnxruntime {onnxruntime.__version__}"
        self._names = names
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            exact = drop_signs(model)
            given = str(exact) if isinstance(exact, Path) else exact.SerializeToString()
            self._session = onnxruntime.InferenceSession(
                given, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # it has many kinds, none of them documented
            raise CannotRun(f"{self.name} does not take it: {first_line(error)}") from error

    def outputs(self, feeds: Sequence[Array]) -> list[Array]:
        """See `Source`."""
        known = {given.name for given in self._session.get_inputs()}
        fed = {n: f for n, f in zip(self._names, feeds, strict=True) if n in known}
        try:
            return _arrays(self._session.run(None, fed))
        except CannotRun:
            raise
        except Exception as error:  # as above
            raise CannotRun(f"{self.name} does not run it: {first_line(error)}") from error


class _Evaluator:
    """ONNX's evaluator in Python, which takes types and operators that onnxruntime does not."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        self.name = f"onnx {onnx.__version__}"
        self._names = names
        proto = onnx.load(str(model)) if isinstance(model, Path) else model
        version = max((v.version for v in proto.opset_import if not v.domain), default=1)
        rounded = {"Erf"} if onnx.TensorProto.DOUBLE in types_in(proto) else set()
        for node in proto.graph.node:
            if version < _WRONG_BELOW.get(node.op_type, 0) or node.op_type in rounded:
                raise CannotRun(f"{self.name} computes {node.op_type} wrongly")
        try:
            self._evaluator = ReferenceEvaluator(proto)
        except Exception as error:  # it raises whatever it meets
            raise CannotRun(f"{self.name} does not take it: {first_line(error)}") from error

    def outputs(self, feeds: Sequence[Array]) -> list[Array]:
        """See `Source`."""
        try:
            fed = dict(zip(self._names, feeds, strict=True))
            with np.errstate(all="ignore"):
                return _arrays(self._evaluator.run(None, fed))
        except CannotRun:
            raise
        except Exception as error:  # as above
            raise CannotRun(f"{self.name} does not run it: {first_line(error)}") from error


def _arrays(values: Sequence[Any]) -> list[Array]:
    if odd := next((v for v in values if not isinstance(v, np.ndarray | np.generic)), None):
        raise CannotRun(f"an output is a {type(odd).__name__}, which is no tensor")
    return [np.asarray(value) for value in values]


@dataclass(frozen=True, slots=True)
class LeftOpen:
    """What of a graph has no values that are right: drawn at random, or in any order.

    Attributes:
        nodes: the operators, each once.
        outputs: places of the outputs that depend on them.
    """

    nodes: tuple[str, ...] = ()
    outputs: frozenset[int] = frozenset()


def find_left_open(proto: Any) -> LeftOpen:
    """What of a graph of ONNX nobody can compare."""
    nodes, tainted = [], set[str]()
    for node in proto.graph.node:
        if node.op_type in RANDOM or _is_unsorted(node):
            nodes.append(node.op_type)
            tainted.update(node.output)
        elif tainted & {*node.input}:
            tainted.update(node.output)
    outputs = frozenset(n for n, o in enumerate(proto.graph.output) if o.name in tainted)
    return LeftOpen(tuple(dict.fromkeys(nodes)), outputs)


def _is_unsorted(node: Any) -> bool:
    return node.op_type == "TopK" and any(a.name == "sorted" and not a.i for a in node.attribute)
