"""PyTorch export archives (`model.pt2`). PyTorch is an optional extra."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spaces.frontends.inputs import InputSpec, Shape
from spaces.frontends.quiet_import import hushed
from spaces.frontends.relax_inputs import close_shapes
from spaces.frontends.torch_archive import core_program, listed, operators, read_archive
from spaces.frontends.torch_dims import check_named, with_named_dims
from spaces.frontends.torch_products import product_converters
from spaces.ir import tvm_compat
from tuner.errors import TunerError, first_line
from tuner.shapes import NO_DOMAIN, Domain


def import_torch(
    path: Path,
    shapes: Sequence[tuple[str, Shape]] = (),
    domain: Domain = NO_DOMAIN,
) -> tuple[Any, tuple[InputSpec, ...], str]:
    """Import an archive that `torch.export.save` wrote into Relax, weights as constants.

    Args:
        shapes: shape of each input that is dynamic. domain: of dimensions that stay symbolic;
        `spaces.frontends.torch_dims` says what they are called.

    Returns:
        The module with a function "main", its inputs under the names that `forward` gives them
        (`inputs_key` for a tensor inside of an argument), and a hash of the file and the shapes.

    Raises:
        TunerError: PyTorch is missing, the file is missing or broken, an input is dynamic, an
            operator cannot be imported, or the model is in training mode.
    """
    program = core_program(read_archive(path), path)
    _check_operators(program, path)
    module = with_named_dims(_import(program, path), path)
    check_named(domain.largest, module)
    module, inputs = close_shapes(module, dict(shapes), domain)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(repr([(i.name, i.dims or i.shape, i.dtype) for i in inputs]).encode())
    return module, inputs, digest.hexdigest()[:16]


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
