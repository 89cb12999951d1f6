"""PyTorch export archives (`model.pt2`). PyTorch is an optional extra."""

from __future__ import annotations

import hashlib
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from spaces.frontends.module_source import ModuleSource, read_module
from spaces.frontends.quiet_import import hushed
from spaces.frontends.torch_archive import core_program, listed, operators, read_archive
from spaces.frontends.torch_dims import NAMES_NOTE, kept_names, with_named_dims
from spaces.frontends.torch_products import product_converters
from spaces.ir import tvm_compat
from tuner.errors import TunerError, first_line


def read_torch(path: Path) -> ModuleSource:
    """Read an archive that `torch.export.save` wrote, weights as constants.

    It is imported at once: only then it is known what its dimensions are called, see
    `spaces.frontends.torch_dims`. Its inputs have the names that `forward` gives them (`inputs_key`
    for a tensor inside of an argument).

    Raises:
        TunerError: PyTorch is missing, the file is missing or broken, an operator cannot be
            imported, or the model is in training mode.
    """
    program = core_program(read_archive(path), path)
    _check_operators(program, path)
    kept = kept_names(path)
    module = with_named_dims(_import(program, path), kept, path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    note = "" if kept else NAMES_NOTE
    return replace(read_module(module, path.stem, "torch", note=note), file=digest)


def _check_operators(program: Any, path: Path) -> None:
    """Refuse operators the importer does not know, with the first node that has each."""
    known = tvm_compat.known_torch_operators()
    unknown: dict[str, str] = {}
    for node in operators(program):
        if node.target.__name__ not in known:
            unknown.setdefault(str(node.target), node.name)
    if unknown:
        raise TunerError(f"{path}: the importer does not know {listed(unknown)}")


def _import(program: Any, path: Path) -> Any:
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with hushed():
            return from_exported_program(
                program,
                unwrap_unit_return_tuple=True,
                custom_convert_map=product_converters(),
                run_ep_decomposition=False,
            )
    except Exception as error:  # converters raise whatever they meet
        raise TunerError(f"{path}: cannot import {_culprit(error)}: {first_line(error)}") from error


def _culprit(error: BaseException) -> str:
    """The node that was being converted: the importer's own errors do not name it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node: Any = frame.f_locals.get("node")
        if frame.f_code.co_name == "_translate_fx_graph" and node.op == "call_function":
            return f"operator {node.target} (node {node.name})"
    return "the graph"
