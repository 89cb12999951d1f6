"""PyTorch export archives (`model.pt2`). PyTorch is an optional extra."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spaces.inputs import InputSpec, Shape
from spaces.quiet import quiet
from spaces.realize import first_line
from spaces.relax_inputs import close_shapes
from tuner.errors import TunerError


def import_torch(
    path: Path, shapes: Sequence[tuple[str, Shape]] = ()
) -> tuple[Any, tuple[InputSpec, ...], str]:
    """Import an archive that `torch.export.save` wrote into Relax.

    Returns:
        The module with a function "main", its inputs, and a hash of the file and the shapes.

    Raises:
        TunerError: PyTorch is missing, the file is missing or broken, an input is dynamic, or an
            operator cannot be imported.
    """
    if not path.is_file():
        raise TunerError(f"{path}: no such file")
    try:
        import torch
    except ImportError as error:
        raise TunerError(
            f"{path}: reading it needs PyTorch; install the extra: pip install "
            "'elastic-tuner[torch]'"
        ) from error
    try:
        with quiet():
            program = torch.export.load(str(path))
    except Exception as error:  # torch raises many kinds on archives that are broken or foreign
        raise TunerError(f"{path} is not a torch.export archive: {first_line(error)}") from error
    module, inputs = close_shapes(_import(program, path), dict(shapes))
    digest = hashlib.sha256(path.read_bytes())
    digest.update(repr([(i.name, i.shape, i.dtype) for i in inputs]).encode())
    return module, inputs, digest.hexdigest()[:16]


def _import(program: Any, path: Path) -> Any:
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with quiet():
            return from_exported_program(program, unwrap_unit_return_tuple=True)
    except Exception as error:  # converters raise whatever they meet
        raise TunerError(f"{path}: cannot be imported: {first_line(error)}") from error
