"""The tensors of a model, wherever they stand: initializers, attributes of nodes, graphs within
nodes, the model's own functions, dense ones and sparse ones, in the file and in others."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import TunerError, first_line
from tuner.files.model_file import is_pointer

_MOST_BYTES = (1 << 31) - 1
"""Of a sparse tensor that is made dense."""


def tensors_of(proto: Any) -> Iterator[Any]:
    """All tensors of a model, those that sparse ones consist of among them."""
    for part in _parts([proto.graph, *proto.functions]):
        yield from getattr(part, "initializer", ())
        sparse = [*getattr(part, "sparse_initializer", ())]
        for attribute in _attributes(part):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            sparse += [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            sparse += attribute.sparse_tensors
        for one in sparse:
            yield from (one.values, one.indices)


def _parts(parts: Iterable[Any]) -> Iterator[Any]:
    """Graphs and functions, and all graphs within their nodes."""
    for part in parts:
        yield part
        for attribute in _attributes(part):
            yield from _parts([attribute.g] if attribute.HasField("g") else attribute.graphs)


def _attributes(part: Any) -> Iterator[Any]:
    """Those of the nodes, and what those of a function are if a call says nothing."""
    for node in part.node:
        yield from node.attribute
    yield from getattr(part, "attribute_proto", ())


def is_external(tensor: Any) -> bool:
    """Whether the data of a tensor are in another file."""
    return bool(tensor.data_location == type(tensor).EXTERNAL)


def load_external(proto: Any, path: Path, digest: Any) -> None:
    """Put the data of other files into a model, and into the digest that it goes on with.

    Raises:
        TunerError: such a file is missing, too short, or not in the folder of the model.
    """
    for tensor in filter(is_external, tensors_of(proto)):
        try:
            data = _external(tensor, path.parent)
        except (OSError, ValueError) as error:
            raise TunerError(f"{path}: {_called(tensor)}: {first_line(error)}") from error
        tensor.raw_data = data
        tensor.data_location = type(tensor).DEFAULT
        del tensor.external_data[:]
        digest.update(data)


def _external(tensor: Any, folder: Path) -> bytes:
    """The data that a tensor has in another file.

    Raises:
        ValueError: why they are not taken; an OSError where they cannot be read.
    """
    about = {entry.key: entry.value for entry in tensor.external_data}
    place = about.get("location", "")
    inside = Path(place)
    if not place or inside.is_absolute() or ".." in inside.parts:
        raise ValueError(f"its data are in {place!r}, which is no path inside the model's folder")
    file = folder / inside
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"its data are in {place}, a link that leads out of the model's folder")
    if not file.is_file():
        raise ValueError(f"its data are in {place}, which is no file beside the model")
    if is_pointer(file):
        raise ValueError(f"its data are in {place}, a pointer of Git LFS: git lfs pull gets them")
    with file.open("rb") as opened:
        left = os.fstat(opened.fileno()).st_size - (offset := int(about.get("offset") or 0))
        length = int(about["length"]) if about.get("length") else left
        if offset < 0 or not 0 <= length <= left:
            raise ValueError(f"{place} ends before its data do")
        opened.seek(offset)
        return opened.read(length)


def check_tensors(proto: Any, path: Path) -> None:
    """Look whether each tensor holds what its shape says.

    Raises:
        TunerError: one is cut short, or of no type that is known.
    """
    import onnx

    for tensor in tensors_of(proto):
        try:
            if min(tensor.dims, default=0) < 0:
                raise ValueError("it has a dimension below 0")
            onnx.numpy_helper.to_array(tensor)
        except Exception as error:  # onnx and NumPy raise what they meet
            shape = "x".join(map(str, tensor.dims)) or "one element"
            raise TunerError(
                f"{path} is damaged: {_called(tensor)} of {shape} cannot be read: "
                f"{first_line(error)}"
            ) from error


def make_dense(proto: Any, path: Path) -> None:
    """Replace sparse tensors by dense ones, in place.

    Raises:
        TunerError: one would be too large, or its indices are not inside its shape.
    """
    for part in _parts([proto.graph, *proto.functions]):
        if sparse := [*getattr(part, "sparse_initializer", ())]:
            part.initializer.extend([_dense(one, path) for one in sparse])
            del part.sparse_initializer[:]
        for attribute in _attributes(part):
            if attribute.name == "sparse_value" and attribute.HasField("sparse_tensor"):
                attribute.t.CopyFrom(_dense(attribute.sparse_tensor, path))
                attribute.ClearField("sparse_tensor")
                attribute.name, attribute.type = "value", type(attribute).TENSOR


def _dense(sparse: Any, path: Path) -> Any:
    import onnx

    values, indices = (
        np.asarray(onnx.numpy_helper.to_array(one)) for one in (sparse.values, sparse.indices)
    )
    dims, said = [*sparse.dims], f"{path}: sparse {_called(sparse.values)}"
    if values.dtype.kind in "OUS" or math.prod(dims) * values.itemsize > _MOST_BYTES:
        raise TunerError(f"{said} is of strings, or would take more than 2 GB as a dense one")
    shapes = ((values.size,), (values.size, len(dims)))
    if values.ndim != 1 or indices.shape not in shapes or min(dims, default=0) < 0:
        raise TunerError(f"{said} has not one index for each value")
    try:
        places = indices if indices.ndim == 1 else np.ravel_multi_index([*indices.T], dims)
        within = np.all((places >= 0) & (places < math.prod(dims)))
    except ValueError:
        within = np.False_
    if not within or len(np.unique(places)) < values.size:
        raise TunerError(f"{said} has indices out of range, or one of them twice")
    dense = np.zeros(math.prod(dims), values.dtype)
    dense[places] = values
    return onnx.numpy_helper.from_array(dense.reshape(dims), sparse.values.name)


def _called(tensor: Any) -> str:
    return f"tensor {tensor.name}" if tensor.name else "a tensor without a name"
