"""ONNX files: read, check, simplify, import."""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spaces.frontends.declared import UNNAMED, Declared, DeclaredInput, Dims, ModelKind
from spaces.frontends.inputs import InputSpec
from spaces.frontends.quiet_import import hushed
from spaces.ir import tvm_compat
from tuner.errors import TunerError, first_line

_STANDARD_DOMAINS = ("", "ai.onnx")
MOST_BYTES = (1 << 31) - 1
"""Of one protobuf."""


@dataclass(frozen=True, slots=True)
class OnnxSource:
    """A graph as a `spaces.frontends.declared.ModelSource`.

    Attributes:
        proto: the protobuf, all data in it.
        path: of the file, or one made of its name.
        file: SHA-256 of the file and its external data, to go on with.
    """

    name: str
    proto: Any
    path: Path
    file: Any
    declared: Declared
    kind: ModelKind = "onnx"

    def imported(self, inputs: Sequence[InputSpec]) -> Any:
        """The module in Relax."""
        return import_graph(self.proto, inputs, self.path)

    def content_hash(self, _module: Any, inputs: Sequence[InputSpec]) -> str:
        """Of the file and the inputs."""
        digest = self.file.copy()
        for spec in inputs:
            digest.update(f"\n{spec.name} {spec.dims or spec.shape} {spec.dtype}".encode())
        return str(digest.hexdigest()[:16])


def read_onnx_file(path: Path) -> OnnxSource:
    """Read an ONNX file.

    Raises:
        TunerError: the file is missing or broken, or an input is no tensor.
    """
    proto = read_onnx(path)
    return OnnxSource(path.stem, proto, path, _file_digest(path, proto), _declared(proto))


def read_onnx_proto(given: Any, name: str) -> OnnxSource:
    """The same of a protobuf in memory, which stays as it is. What is written as the same bytes in
    a file has the same hash.

    Raises:
        TunerError: as `read_onnx_file`; it is too large for one file, or its weights are elsewhere.
    """
    import onnx.external_data_helper as external

    path = Path(f"{name}.onnx")
    if given.ByteSize() > MOST_BYTES:
        raise TunerError(f"{path}: more than 2 GB cannot be passed on: save it, and name the file")
    if any(external.uses_external_data(t) for t in given.graph.initializer):
        raise TunerError(f"{path}: its weights are in other files: name the file of the model")
    if not given.graph.node or not given.graph.output:
        raise TunerError(f"{path} is not an ONNX model: it holds no graph")
    proto = type(given)()
    proto.CopyFrom(given)
    digest = hashlib.sha256(given.SerializeToString())
    return OnnxSource(name, proto, path, digest, _declared(proto))


def import_graph(proto: Any, inputs: Sequence[InputSpec], path: Path) -> Any:
    """Import a graph into Relax.

    Args:
        proto: with all data in it; it is changed.
        inputs: all that has to be fed in.

    Returns:
        A module with a function "main".

    Raises:
        TunerError: an operator cannot be imported.
    """
    _pin_shapes(proto, inputs)
    split_sums(proto)
    return _import_simplified(proto, path)


def read_onnx(path: Path) -> Any:
    """The protobuf of an ONNX file, external data loaded.

    Raises:
        TunerError: missing, unreadable, or not a model.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not path.is_file():
        raise TunerError(f"{path}: no such file")
    try:
        proto = onnx.load(str(path))
    except (DecodeError, OSError, ValueError, RuntimeError) as error:
        raise TunerError(f"{path} is not a readable ONNX model: {first_line(error)}") from error
    except onnx.checker.ValidationError as error:
        # How a missing or foreign file of external data shows.
        raise TunerError(f"{path}: {first_line(error)}") from error
    if not proto.graph.node or not proto.graph.output:
        raise TunerError(f"{path} is not an ONNX model: it holds no graph")
    return proto


def _declared(proto: Any) -> Declared:
    """What has to be fed in."""
    from onnx.helper import tensor_dtype_to_np_dtype

    weights = {i.name for i in proto.graph.initializer}
    inputs = []
    for value in proto.graph.input:
        if value.name in weights:
            continue
        if value.type.WhichOneof("value") != "tensor_type":
            raise TunerError(f"input {value.name} is no tensor, which is not supported")
        dtype = str(tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        inputs.append(DeclaredInput(value.name, dtype, _declared_shape(value)))
    named = (d for i in inputs for d in i.dims or () if isinstance(d, str) and d != UNNAMED)
    return Declared(tuple(inputs), tuple(dict.fromkeys(named)))


def _declared_shape(value: Any) -> Dims | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    return tuple(d.dim_value if d.dim_value > 0 else d.dim_param or UNNAMED for d in dims)


def _pin_shapes(proto: Any, inputs: Iterable[InputSpec]) -> None:
    """Write the inputs' shapes into the graph; shapes inferred from the symbolic ones go."""
    by_name = {i.name: i for i in inputs}
    changed = False
    for value in proto.graph.input:
        spec = by_name.get(value.name)
        wanted = (spec.dims or spec.shape) if spec is not None else None
        if wanted is None or _declared_shape(value) == wanted:
            continue
        changed = True
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for size in wanted:
            if isinstance(size, int):
                shape.dim.add().dim_value = size
            else:
                shape.dim.add().dim_param = size
    if changed:
        del proto.graph.value_info[:]
        for output in proto.graph.output:
            output.type.tensor_type.ClearField("shape")


def split_sums(proto: Any) -> None:
    """Turn each `Sum` of several tensors into additions, in place.

    The importer stacks the tensors and reduces the stack, which copies them and keeps the
    addition of a residual block from being fused with its convolution.
    """
    import onnx

    nodes = []
    for node in proto.graph.node:
        if node.op_type != "Sum" or node.domain not in _STANDARD_DOMAINS or len(node.input) < 2:
            nodes.append(node)
            continue
        left = node.input[0]
        for number, right in enumerate(node.input[1:], start=1):
            last = number == len(node.input) - 1
            out = node.output[0] if last else f"{node.output[0]}/partial{number}"
            nodes.append(onnx.helper.make_node("Add", [left, right], [out], name=node.name))
            left = out
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _file_digest(path: Path, proto: Any) -> Any:
    """A SHA-256 of a file and its external data, to go on with."""
    import onnx.external_data_helper as external

    digest = hashlib.sha256(path.read_bytes())
    bare = _without_data(path)
    for tensor in bare.graph.initializer:
        if external.uses_external_data(tensor):
            loaded = next(i for i in proto.graph.initializer if i.name == tensor.name)
            digest.update(loaded.raw_data)
    return digest


def _without_data(path: Path) -> Any:
    import onnx

    return onnx.load(str(path), load_external_data=False)


def has_external_data(path: Path) -> bool:
    """Whether weights of the file are kept in other files beside it."""
    import onnx.external_data_helper as external

    return any(external.uses_external_data(t) for t in _without_data(path).graph.initializer)


def _import_simplified(proto: Any, path: Path) -> Any:
    """Import the simplified graph, or the original where that fails.

    Simplifying resolves the dynamic reshapes that some exporters leave, which the importer
    cannot take; where it changes the outputs or makes things worse, the original decides.
    """
    simple = simplified(proto)
    if simple is not None:
        try:
            return _import(simple, path)
        except TunerError:
            pass
    return _import(proto, path)


def simplified(proto: Any) -> Any | None:
    """A simplified copy of a graph; None where that fails or the outputs would change."""
    import onnxslim

    copy = type(proto)()
    copy.CopyFrom(proto)
    try:
        with hushed():
            simple = onnxslim.slim(copy)
    except Exception:  # it may raise anything on graphs it does not know
        return None
    if simple is None or _outputs(simple) != _outputs(proto):
        return None
    wanted = {i.name for i in proto.graph.input}
    return simple if {i.name for i in simple.graph.input} <= wanted else None


def _outputs(proto: Any) -> list[tuple[str, int]]:
    """Names and element types. Shapes may become better known and are checked by the importer."""
    return [(o.name, o.type.tensor_type.elem_type) for o in proto.graph.output]


def _import(proto: Any, path: Path) -> Any:
    from tvm.relax.frontend.onnx import from_onnx

    _check_operators(proto, path)
    try:
        with hushed():
            return from_onnx(proto)
    except Exception as error:  # converters raise whatever they meet
        where, why = _culprit(error)
        raise TunerError(f"{path}: cannot import {where}: {why}") from error


def _check_operators(proto: Any, path: Path) -> None:
    """Refuse operators the importer does not know, with the node that has each."""
    known = tvm_compat.known_onnx_operators()
    unknown: dict[str, str] = {}
    for node in proto.graph.node:
        if node.op_type not in known:
            domain = "" if node.domain in _STANDARD_DOMAINS else f"{node.domain}."
            unknown.setdefault(domain + node.op_type, _node_name(node))
    if unknown:
        listed = ", ".join(f"{op} (node {node})" for op, node in unknown.items())
        plural = "operators" if len(unknown) > 1 else "operator"
        raise TunerError(f"{path}: the importer does not know {plural} {listed}")


def _node_name(node: Any) -> str:
    return str(node.name or f"of output {node.output[0]}")


def _culprit(error: BaseException) -> tuple[str, str]:
    """The node that was being converted, which the importer does not name, and what is wrong."""
    why = re.sub(r"\s+", " ", first_line(error))
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("node")
        if frame.f_code.co_name == "_construct_nodes" and node is not None:
            if isinstance(error, KeyError) and error.args[0] in node.input:
                why = f"nothing computes its input {error.args[0]}"
            return f"operator {node.op_type} (node {_node_name(node)})", why
    return "the graph", why
