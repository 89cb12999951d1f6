"""ONNX files: read, check, simplify, import."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spaces.frontends.declared import UNNAMED, Declared, DeclaredInput, Dims, ModelKind
from spaces.frontends.inputs import InputSpec
from spaces.frontends.onnx.contributed.cache_widths import find_cache_widths
from spaces.frontends.onnx.contributed.length_masks import ONES, find_length_masks
from spaces.frontends.onnx.contributed.registry import ONE_MACHINES
from spaces.frontends.onnx.converters.wide_sums import accumulate_wide
from spaces.frontends.onnx.dimension_names import name_dimensions
from spaces.frontends.onnx.graph import graph_module
from spaces.frontends.onnx.operators import unknown_operators
from spaces.frontends.onnx.simplifier.simplify import simplify, split_sums
from spaces.frontends.onnx.tensors import (
    check_tensors,
    is_external,
    load_external,
    make_dense,
    tensors_of,
)
from spaces.frontends.quiet_import import hush
from spaces.ir import tvm_compat
from spaces.ir.symbolic import NO_VALUES, value_of
from spaces.lowering.plain_shapes import with_plain_inputs
from tuner.dynamic.derived_names import bases_of
from tuner.dynamic.shapes import NO_DOMAIN, Domain
from tuner.errors import TunerError, first_line
from tuner.files.model_file import check_file

MOST_BYTES = (1 << 31) - 1
"""Of one protobuf."""


@dataclass(frozen=True, slots=True)
class OnnxSource:
    """A graph as a `spaces.frontends.declared.ModelSource`.

    Attributes:
        proto: the protobuf, all data in it.
        path: of the file, or one made of its name.
        file: SHA-256 of the file and its external data, to go on with; None where there is none.
        torch_program: the program of PyTorch that it was written of; None of any other.
    """

    name: str
    proto: Any
    path: Path
    file: Any
    declared: Declared
    kind: ModelKind = "onnx"
    torch_program: Any = None

    def imported(self, inputs: Sequence[InputSpec], domain: Domain) -> Any:
        """The module in Relax."""
        return import_graph(self.proto, inputs, self.path, domain)

    def content_hash(self, module: Any, inputs: Sequence[InputSpec]) -> str:
        """Of the file and the inputs; of a model that is in no file its structural hash."""
        if self.file is None:
            return tvm_compat.structural_hash_hex(module)
        digest = self.file.copy()
        for spec in inputs:
            digest.update(f"\n{spec.name} {spec.dims or spec.shape} {spec.dtype}".encode())
        return str(digest.hexdigest()[:16])


def read_onnx_file(path: Path) -> OnnxSource:
    """Read an ONNX file.

    Raises:
        TunerError: the file is missing or broken, or an input is no tensor.
    """
    proto, digest = _read(path)
    return OnnxSource(path.stem, proto, path, digest, _read_declared(proto))


def read_onnx_proto(given: Any, name: str) -> OnnxSource:
    """The same of a protobuf in memory, which stays as it is. What is written as the same bytes in
    a file has the same hash.

    Raises:
        TunerError: as `read_onnx_file`; it is too large for one file, or its weights are elsewhere.
    """
    path = Path(f"{name}.onnx")
    if given.ByteSize() > MOST_BYTES:
        raise TunerError(f"{path}: more than 2 GB cannot be passed on: save it, and name the file")
    if any(map(is_external, tensors_of(given))):
        raise TunerError(f"{path}: its weights are in other files: name the file of the model")
    proto = type(given)()
    proto.CopyFrom(given)
    digest = hashlib.sha256(given.SerializeToString())
    return OnnxSource(name, _check(proto, path), path, digest, _read_declared(proto))


def import_graph(
    proto: Any, inputs: Sequence[InputSpec], path: Path, domain: Domain = NO_DOMAIN
) -> Any:
    """Import a graph into Relax.

    Some graphs have known shapes only for multiples: where an image is made smaller and larger
    again, and joined with what it was. If all sizes of its dimensions have a common divisor, it is
    imported for the multiples of the least divisor that will do.

    Args:
        proto: with all data in it; it is changed.
        inputs: all that has to be fed in.
        domain: of its symbolic dimensions.

    Returns:
        A module with a function "main".

    Raises:
        TunerError: an operator cannot be imported, or not for these sizes.
    """
    _check_operators(proto, path)
    _pin_shapes(proto, inputs)
    split_sums(proto)
    simplify(proto)
    refused: TunerError | None = None
    for multiples in (NO_VALUES, *_common_divisors(domain)):
        try:
            return _import(proto, inputs, domain, multiples)
        except TunerError as error:
            refused = refused or error
    raise TunerError(f"{path}: {refused}") from refused


def _common_divisors(domain: Domain) -> Iterator[dict[str, int]]:
    """By what all sizes of each dimension can be divided, the least divisors first."""
    common = {name: math.gcd(*sizes) for name, sizes in domain.dims}
    for number in range(2, max(common.values(), default=0) + 1):
        if found := {name: number for name, most in common.items() if most % number == 0}:
            yield found


def _import(
    proto: Any, inputs: Sequence[InputSpec], domain: Domain, multiples: Mapping[str, int]
) -> Any:
    with hush():
        module, requirements = graph_module(proto, inputs, multiples)
    for sizes in (domain.smallest, domain.largest):
        for required in requirements:
            excess = value_of(required.excess, sizes)
            if excess is not None and excess > 0:
                said = ", ".join(f"{name}={size}" for name, size in sizes.items())
                why = required.said.format(excess)
                raise TunerError(f"--dim: with {said}, {required.node} {why}")
    return with_plain_inputs(accumulate_wide(module))


def read_onnx(path: Path) -> Any:
    """The protobuf of an ONNX file, external data loaded, and no sparse tensors in it.

    Raises:
        TunerError: missing, unreadable, or not a model.
    """
    return _read(path)[0]


def _read(path: Path) -> tuple[Any, Any]:
    """A protobuf, and a SHA-256 of its file and its external data, to go on with."""
    check_file(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TunerError(f"{path}: {first_line(error)}") from error
    proto, digest = _parse(data, path), hashlib.sha256(data)
    load_external(proto, path, digest)
    return _check(proto, path), digest


def _parse(data: bytes, path: Path) -> Any:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return onnx.load_model_from_string(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise TunerError(f"{path} is not a readable ONNX model: {first_line(error)}") from error


def _check(proto: Any, path: Path) -> Any:
    """A protobuf that holds a graph and whole tensors, sparse ones made dense."""
    if not proto.graph.output:
        raise TunerError(f"{path} is not an ONNX model: it holds no graph")
    check_tensors(proto, path)
    make_dense(proto, path)
    return proto


def _read_declared(proto: Any) -> Declared:
    """What has to be fed in."""
    from onnx import TensorProto
    from onnx.helper import tensor_dtype_to_np_dtype

    weights = {i.name for i in proto.graph.initializer}
    masks = find_length_masks(proto.graph)
    names: dict[str, str | int] = {**_dim_names(proto), **find_cache_widths(proto.graph)}
    inputs = []
    for value in proto.graph.input:
        if value.name in weights:
            continue
        if value.type.WhichOneof("value") != "tensor_type":
            raise TunerError(f"input {value.name} is no tensor, which is not supported")
        if value.type.tensor_type.elem_type == TensorProto.STRING:
            raise TunerError(f"input {value.name} holds strings, which are not supported")
        dtype = str(tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        drawn = ONES if value.name in masks else None
        inputs.append(DeclaredInput(value.name, dtype, _read_shape(value, names), drawn))
    named = (d for i in inputs for d in i.dims or () if isinstance(d, str) and d != UNNAMED)
    symbols = dict.fromkeys(base for name in named for base in bases_of(name))
    return Declared(tuple(inputs), tuple(symbols), note=_describe_masks(inputs, masks))


def _describe_masks(inputs: Iterable[DeclaredInput], masks: Collection[str]) -> str:
    """That a mask is as long as two dimensions together, which a file gives a name of its own."""
    lengths = [one.dims[-1] for one in inputs if one.name in masks and one.dims]
    open_ = [dim for dim in lengths if isinstance(dim, str) and bases_of(dim) == (dim,)]
    if not open_:
        return ""
    return f"{open_[0]} is past and new rows, by their names: --dim {open_[0]}=past+new"


def _read_shape(value: Any, names: Mapping[str, str | int]) -> Dims | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else names[d.dim_param]
        for d in dims
    )


def _dim_names(proto: Any) -> Mapping[str, str]:
    """The dimensions of the inputs as they are called here."""
    shapes = (value.type.tensor_type.shape for value in proto.graph.input)
    texts = {dim.dim_param: None for shape in shapes for dim in shape.dim}
    named = name_dimensions(text for text in texts if text and text != UNNAMED)
    return {**dict.fromkeys(texts, UNNAMED), **named}


def _pin_shapes(proto: Any, inputs: Iterable[InputSpec]) -> None:
    """Write the inputs' shapes into the graph; shapes inferred from the symbolic ones go."""
    by_name, names = {i.name: i for i in inputs}, _dim_names(proto)
    changed = False
    for value in proto.graph.input:
        spec = by_name.get(value.name)
        wanted = (spec.dims or spec.shape) if spec is not None else None
        if wanted is None or _read_shape(value, names) == wanted:
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


def has_external_data(path: Path) -> bool:
    """Whether weights of the file are kept in other files beside it."""
    return any(map(is_external, tensors_of(_parse(path.read_bytes(), path))))


def _check_operators(proto: Any, path: Path) -> None:
    """Refuse operators that nothing here imports, with the node that has each."""
    if unknown := unknown_operators(proto):
        plural = "operators" if len(unknown) > 1 else "operator"
        listed = ", ".join(one.removeprefix("operator ") for one in unknown)
        said = f"{path}: the importer does not know {plural} {listed}"
        if any(node.domain == ONE_MACHINES for node in proto.graph.node):
            said += "; the file is for one machine alone: save it with ORT_ENABLE_EXTENDED"
        raise TunerError(said)
