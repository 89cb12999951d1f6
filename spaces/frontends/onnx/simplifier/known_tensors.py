"""The constants of a graph that is made simpler, by name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.frontends.onnx.size_operators import constant_of

Array = npt.NDArray[Any]
_SMALL = 1 << 12
"""Elements of a constant that is compared with others: larger ones are weights."""


class KnownTensors:
    """Initializers of a graph, and what is computed of them."""

    def __init__(self, graph: Any) -> None:
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._arrays: dict[str, Array] = {}
        self._taken = {name for node in graph.node for name in (*node.input, *node.output)}
        self._taken |= {value.name for value in graph.input} | self._tensors.keys()

    def dims(self, name: str) -> tuple[int, ...] | None:
        """The shape; None where it is no constant."""
        if name in self._arrays:
            return self._arrays[name].shape
        return (*self._tensors[name].dims,) if name in self._tensors else None

    def array(self, name: str) -> Array | None:
        """The values; None where it is no constant, or of a type that NumPy does not have."""
        import onnx

        if name in self._tensors and name not in self._arrays:
            found = np.asarray(onnx.numpy_helper.to_array(self._tensors[name]))
            if not is_plain(found):
                return None
            self._arrays[name] = found
        return self._arrays.get(name)

    def add(self, name: str, array: Array) -> None:
        """Have a name stand for these values."""
        self._tensors.pop(name, None)
        self._arrays[name] = array

    def add_node(self, node: Any) -> bool:
        """Have a `Constant` stand for what it holds; False where that is no tensor."""
        import onnx

        (attribute,) = node.attribute or [onnx.AttributeProto()]
        if attribute.name == "value" and attribute.HasField("t"):
            tensor = onnx.TensorProto()
            tensor.CopyFrom(attribute.t)
            tensor.name = node.output[0]
            self._tensors[tensor.name] = tensor
            return True
        given = {attribute.name: onnx.helper.get_attribute_value(attribute)}
        array = None if attribute.ref_attr_name else constant_of(given)
        if array is None or not is_plain(array):
            return False
        self._arrays[node.output[0]] = array
        return True

    def new(self, wanted: str, array: Array) -> str:
        """A name for new values, like the wanted one."""
        name = wanted
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        self._arrays[name] = array
        return name

    def repeated(self) -> dict[str, str]:
        """Small constants that another one before them equals in each bit, with its name."""
        seen: dict[Any, str] = {}
        found = {}
        for name in {**self._tensors, **self._arrays}:
            array = self.array(name) if math.prod(self.dims(name) or ()) <= _SMALL else None
            if array is not None:
                first = seen.setdefault((str(array.dtype), array.shape, array.tobytes()), name)
                if first != name:
                    found[name] = first
        return found

    def keep_in(self, graph: Any, names: Iterable[str]) -> None:
        """Make those of these names that are constants the graph's initializers, in the order that
        they came.

        Those that stay are not touched: a protobuf keeps the memory of what was taken out of it.
        """
        import onnx

        wanted = set(names)
        for place, tensor in reversed([*enumerate(graph.initializer)]):
            if tensor.name not in wanted or self._tensors.get(tensor.name) is not tensor:
                del graph.initializer[place]
        there = {tensor.name for tensor in graph.initializer}
        made = [n for n in self._tensors if n in wanted - there]
        graph.initializer.extend(self._tensors[name] for name in made)
        for name, array in self._arrays.items():
            if name in wanted and name not in self._tensors:
                tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
                graph.initializer.append(tensor)


def is_plain(array: Array) -> bool:
    """Whether values are of a type of NumPy's own, which its functions compute with."""
    return array.dtype.kind in "biuf" and array.dtype.isbuiltin == 1
