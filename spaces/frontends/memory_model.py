"""Models from memory: what a program already holds of TVM, ONNX or PyTorch.

Whatever was given, a run keeps it as `spaces.frontends.model_copy` does, and needs the object no
more.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from spaces.frontends.declared import ModelSource
from spaces.frontends.model import Model, domain_of, import_model
from spaces.frontends.module_source import ModuleSource
from spaces.frontends.onnx.model import OnnxSource
from spaces.frontends.shape_var import DynamicProgram
from tuner.errors import TunerError, UsageError, first_line
from tuner.request.model_spec import ModelSpec

KINDS = (
    "a path, path.py:function, an IRModule, a PrimFunc, a list of te.Tensors, a DynamicProgram, an "
    "onnx.ModelProto, a torch.export.ExportedProgram, or a torch.nn.Module with example_inputs"
)
_NAME = "model"
_ODD = re.compile(r"[^\w.-]+")
_LONGEST = 60


def model_in_memory(program: Any, spec: ModelSpec, example_inputs: Any = None) -> Model:
    """Import a model that is an object.

    Args:
        program: one of `KINDS`; it stays as it is.
        spec: what its dynamic shapes and free arguments are; its source is not looked at.
        example_inputs: of a `torch.nn.Module`: what `forward` is called with.

    Raises:
        UsageError: it is of another kind, or what is said of it is for another kind.
        TunerError: whatever keeps it from being imported, in one line.
    """
    if spec.args:
        raise UsageError("args: only a function takes arguments: name it as path.py:function")
    check_examples(program, example_inputs)
    proto = program if _is(program, "onnx", "ModelProto") else None
    source = _source(program, spec, example_inputs)
    return import_model(source, spec, domain_of(spec), proto=proto)


def check_examples(program: Any, example_inputs: Any) -> None:
    """See that a `torch.nn.Module` has example inputs, and nothing else, a path for one.

    Raises:
        UsageError: it is not so.
    """
    if (example_inputs is not None) != _is_module(program):
        raise UsageError(
            "example_inputs: a torch.nn.Module needs them, and nothing else takes them"
        )


def _is_module(program: Any) -> bool:
    return _is(program, "torch.nn", "Module")


def _is(program: Any, library: str, kind: str) -> bool:
    """Whether something is of a library's kind; who has none such need not have the library."""
    found = getattr(sys.modules.get(library), kind, None)
    return found is not None and isinstance(program, found)


def _source(program: Any, spec: ModelSpec, example_inputs: Any) -> ModelSource:
    if _is_module(program):
        return _of_torch(_export(program, spec, example_inputs), _plain(type(program).__name__))
    if _is(program, "torch.export", "ExportedProgram"):
        return _of_torch(program, _NAME)
    if _is(program, "onnx", "ModelProto"):
        from spaces.frontends.onnx.model import read_onnx_proto

        return read_onnx_proto(program, _plain(program.graph.name))
    return _of_tvm(program)


def _of_tvm(program: Any) -> ModuleSource:
    from tvm.ir import IRModule

    from spaces.frontends.function_model import is_tensors, read_program
    from spaces.ir.tvm_compat import is_prim_func

    bare = program.program if isinstance(program, DynamicProgram) else program
    if not (isinstance(bare, IRModule) or is_prim_func(bare) or is_tensors(bare)):
        raise UsageError(f"{type(bare).__name__} is no model: give {KINDS}")
    source = read_program(program, "the model", _NAME)
    names = [str(var.name_hint) for var in source.module.get_global_vars()]
    return replace(source, name=_plain(names[0]) if len(names) == 1 else _NAME)


def _export(program: Any, spec: ModelSpec, example_inputs: Any) -> Any:
    """What `torch.export` makes of a module, all of its shapes as in the examples."""
    import torch

    if spec.dims or spec.ties:
        raise UsageError(
            "dims: export the torch.nn.Module with dynamic_shapes, and give what "
            "torch.export.export returns; its dimensions are called after input and axis, as x_0"
        )
    one = isinstance(example_inputs, torch.Tensor)
    examples = (example_inputs,) if one else tuple(example_inputs)
    try:
        return torch.export.export(program, examples)
    except Exception as error:  # it raises many kinds on what it cannot trace
        raise TunerError(f"torch.export cannot export it: {first_line(error)}") from error


def _of_torch(program: Any, name: str) -> ModuleSource | OnnxSource:
    """By way of an archive: importing changes a program, and this is the user's own."""
    import torch

    from spaces.frontends.pytorch.model import read_torch

    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / f"{name}.pt2"
        try:
            torch.export.save(program, archive)
        except Exception as error:  # what is in a program may be anything
            raise TunerError(f"torch.export cannot save it: {first_line(error)}") from error
        try:
            # Two archives of one program may differ.
            return replace(read_torch(archive), name=name, file=None, torch_program=program)
        except TunerError as error:
            raise TunerError(str(error).replace(str(archive), "the program")) from error


def _plain(name: str) -> str:
    """A name that a folder may have."""
    return _ODD.sub("-", str(name))[:_LONGEST].strip("-.") or _NAME
