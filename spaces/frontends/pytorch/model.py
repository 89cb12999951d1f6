"""PyTorch export archives (`model.pt2`). PyTorch is an optional extra.

TVM's importer takes most of them. Where it fails, or makes of a node what PyTorch says it is not,
they go by way of ONNX, see `spaces.frontends.pytorch.by_onnx`.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from spaces.frontends.module_source import ModuleSource, read_module
from spaces.frontends.onnx.model import OnnxSource
from spaces.frontends.pytorch.archive import core_program, list_operators, operators, read_archive
from spaces.frontends.pytorch.by_onnx import read_by_onnx
from spaces.frontends.pytorch.dims import NAMES_NOTE, read_kept_names, with_named_dims
from spaces.frontends.pytorch.experts import expert_converters
from spaces.frontends.pytorch.products import product_converters
from spaces.frontends.pytorch.quantized import group_converters
from spaces.frontends.pytorch.sums import sum_converters
from spaces.frontends.quiet_import import hush
from spaces.ir import tvm_compat
from spaces.ir.symbolic import symbols
from spaces.lowering.index_bounds import bound_indices
from tuner.errors import TunerError, first_line


def read_torch(path: Path) -> ModuleSource | OnnxSource:
    """Read an archive that `torch.export.save` wrote, weights as constants.

    TVM imports it at once: only then it is known what its dimensions are called, see
    `spaces.frontends.pytorch.dims`, and whether it can. Its inputs have the names that `forward`
    gives them (`inputs_key` for a tensor inside of an argument).

    Raises:
        TunerError: PyTorch is missing, the file is missing or broken, an operator cannot be
            imported, or the model is in training mode.
    """
    exported = read_archive(path)
    program = core_program(exported, path)
    kept = read_kept_names(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    try:
        module = _import(program, path)
    except TunerError as refused:
        by_onnx = read_by_onnx(program, path, kept, digest, refused)
        return replace(by_onnx, torch_program=exported)
    note = "" if kept else NAMES_NOTE
    module = with_named_dims(module, kept, path)
    read = read_module(module, path.stem, "torch", note=note)
    return replace(read, file=digest, torch_program=exported)


def _import(program: Any, path: Path) -> Any:
    """A program as TVM's importer has it.

    Raises:
        TunerError: it does not know an operator, or does not do what PyTorch does.
    """
    converters = {
        **product_converters(),
        **sum_converters(),
        **expert_converters(),
        **group_converters(program),
    }
    _check_operators(program, path, tvm_compat.list_torch_operators().union(converters))
    try:
        with hush():
            module, made = tvm_compat.torch_imported(program, converters)
    except Exception as error:  # converters raise whatever they meet
        raise TunerError(f"{path}: cannot import {_culprit(error)}: {first_line(error)}") from error
    is_symbolic = bool(symbols(module["main"]))
    for node, value in made.items():
        if wrong := _difference(node, value, is_symbolic):
            raise TunerError(f"{path}: cannot import {_named(node)}: {wrong}")
    if is_symbolic:
        _check_legal(module, path)
    return module


def _check_operators(program: Any, path: Path, known: Collection[str]) -> None:
    """Refuse operators the importer does not know, with the first node that has each."""
    unknown: dict[str, str] = {}
    for node in operators(program):
        if node.target.__name__ not in known:
            unknown.setdefault(str(node.target), node.name)
    if unknown:
        raise TunerError(f"{path}: the importer does not know {list_operators(unknown)}")


def _difference(node: Any, value: Any, is_symbolic: bool) -> str:
    """How what the importer made of a node is not what PyTorch says of it; empty where it is.

    Args:
        is_symbolic: whether shapes have to be known: where no dimension is symbolic, TVM finds a
            way at run time.
    """
    import torch
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
    from tvm import relax

    said, have = node.meta.get("val"), getattr(value, "ty", None)
    if not isinstance(said, torch.Tensor) or not isinstance(have, relax.TensorType):
        return ""
    dtype = str(said.dtype).removeprefix("torch.")
    if tvm_compat.param_dtype(value) != dtype:
        return f"it gives {tvm_compat.param_dtype(value)}, and in PyTorch {dtype}"
    known = isinstance(have.shape, relax.ShapeExpr)
    if is_symbolic and not known and not free_unbacked_symbols(said):
        return f"its shape, in PyTorch {','.join(map(str, said.shape))}, is lost"
    return ""


def _check_legal(module: Any, path: Path) -> None:
    """Refuse a graph that cannot be lowered: some operators fail on symbolic sizes only there."""
    from tvm.relax.transform import LegalizeOps

    try:
        LegalizeOps()(bound_indices(module))  # of others TVM warns
    except Exception as error:  # it raises whatever is raised within
        raise TunerError(f"{path}: cannot lower the graph: {first_line(error)}") from error


def _culprit(error: BaseException) -> str:
    """The node that was being converted: the importer's own errors do not name it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node: Any = frame.f_locals.get("node")
        if frame.f_code.co_name == "_translate_fx_graph" and node.op == "call_function":
            return _named(node)
    return "the graph"


def _named(node: Any) -> str:
    return f"operator {node.target} (node {node.name})"
