"""Archives that TVM's importer of PyTorch does not take, by way of ONNX.

PyTorch's own exporter writes the program as an ONNX graph, with all sizes in the program's symbols,
and the importer of those (`spaces.frontends.onnx`) calculates with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spaces.frontends.module_source import LEAST_EXPORTED
from spaces.frontends.onnx.model import OnnxSource, read_onnx_proto
from spaces.frontends.pytorch.dims import NAMES_NOTE, with_named_symbols
from spaces.frontends.pytorch.quantized import without_groups
from spaces.frontends.quiet_import import hush
from tuner.checks import LARGEST
from tuner.errors import TunerError


def read_by_onnx(
    program: Any, path: Path, kept: Mapping[str, str], file: Any, refused: TunerError
) -> OnnxSource:
    """What a program declares, and its graph.

    Args:
        program: in core operators, fed with tensors only.
        path: of the archive.
        kept: the names that were kept with it, by place.
        file: SHA-256 of the archive.
        refused: why it cannot be imported otherwise.

    Raises:
        TunerError: that, where there is no such graph either, or the names do not fit.
    """
    proto = _export(program, refused)
    try:
        source = read_onnx_proto(proto, path.stem)
    except TunerError:
        raise refused from None
    bounds = _bounds(program)
    if not {*source.declared.symbols} <= {*bounds}:
        raise refused  # a dimension is no such expression of symbols as has a name
    said = replace(source.declared, bounds=bounds, note="" if kept else NAMES_NOTE)
    declared = with_named_symbols(said, kept, path)
    return replace(source, kind="torch", path=path, file=file, declared=declared)


def _export(program: Any, refused: TunerError) -> Any:
    """The program as a protobuf.

    Raises:
        TunerError: why it is refused, if it cannot be had.
    """
    import torch

    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise TunerError(
            f"{refused}; it may be imported by way of ONNX, which needs onnxscript: install the "
            "extra: pip install 'elastic-tuner[torch]'"
        ) from error
    try:
        with hush():
            core = without_groups(program)
            proto = torch.onnx.export(core, dynamo=True, verbose=False).model_proto
    except Exception:  # it raises many kinds on what ONNX cannot say
        raise refused from None
    if _fed(program) != [i.name for i in proto.graph.input] or _list_types(program) != _types(
        proto
    ):
        raise refused  # what is no tensor is left out of a graph
    return proto


def _fed(program: Any) -> list[str]:
    """Names of the inputs of a program."""
    from torch.export.graph_signature import InputKind

    specs = program.graph_signature.input_specs
    return [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]


def _list_types(program: Any) -> list[str]:
    """Element types of the outputs of a program; empty of what is no tensor."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    outputs = (values.get(spec.arg.name) for spec in program.graph_signature.output_specs)
    return [str(getattr(value, "dtype", "")).removeprefix("torch.") for value in outputs]


def _types(proto: Any) -> list[str]:
    """Element types of the outputs of a graph."""
    from onnx.helper import tensor_dtype_to_np_dtype

    kinds = (output.type.tensor_type.elem_type for output in proto.graph.output)
    return [str(tensor_dtype_to_np_dtype(kind)) for kind in kinds]


def _bounds(program: Any) -> dict[str, tuple[int, int]]:
    """The least and the largest value of each symbol."""
    bounds = {}
    for symbol, known in program.range_constraints.items():
        least, most = int(known.lower), int(min(known.upper, LARGEST))
        bounds[str(symbol)] = (least if least > LEAST_EXPORTED else 0, most)
    return bounds
