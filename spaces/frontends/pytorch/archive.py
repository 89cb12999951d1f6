"""Archives of `torch.export`: read, brought down to core operators, and looked through for what
a compiled model cannot do."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from spaces.frontends.pytorch.quantized import list_formulas
from spaces.frontends.quiet_import import hush
from tuner.errors import TunerError, first_line
from tuner.files.model_file import check_file

_TRAINED_NORMS = ("_native_batch_norm_legit_functional.default", "_native_batch_norm_legit.default")
_PROGRAM_FILES = ("models/model.json", "serialized_exported_program.json")
"""Where an archive keeps its program; the second is what PyTorch 2.7 and older wrote."""
_NO_PROGRAM = "holds no exported program; torch.export.save writes one"


def read_archive(path: Path) -> Any:
    """The exported program of an archive.

    Raises:
        TunerError: PyTorch is missing, or the file is missing, broken or something else.
    """
    check_file(path)
    try:
        import torch
    except ImportError as error:
        raise TunerError(
            f"{path}: reading it needs PyTorch; install the extra: pip install "
            "'elastic-tuner[torch]'"
        ) from error
    holds_program = _holds_program(path)
    try:
        with hush():
            # Registers `quantized_decomposed`, which archives of quantized networks call.
            from torch.ao.quantization.fx import _decomposed  # noqa: F401

            return torch.export.load(str(path))
    except Exception as error:  # torch raises many kinds on archives that are broken or foreign
        reason = _unreadable(path, error) if holds_program else _NO_PROGRAM
        raise TunerError(f"{path}: {reason}") from error


def _holds_program(path: Path) -> bool:
    """Whether a file holds an exported program, as far as its table of contents says.

    Raises:
        TunerError: it is no archive, or a part of it is damaged, which PyTorch does not notice.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            names = archive.namelist()
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise TunerError(f"{path} is not a torch.export archive: {first_line(error)}") from error
    if damaged is not None:
        raise TunerError(f"{path} is damaged: the checksum of {damaged} is wrong")
    return any(name.endswith(_PROGRAM_FILES) for name in names)


def _unreadable(path: Path, error: Exception) -> str:
    """Why PyTorch could not read an archive; it tells its log more than its caller."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(_PROGRAM_FILES)]
            unknown = _find_unresolved(json.loads(archive.read(names[0])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        unknown = {}  # another layout of the program than this version knows
    if unknown:
        return f"PyTorch here does not know {list_operators(unknown)}"
    return f"PyTorch here cannot read this archive: {first_line(error)}"


def _find_unresolved(program: dict[str, Any]) -> dict[str, str]:
    """Operators that nothing has registered, each with the first node that calls it."""
    import torch

    unknown: dict[str, str] = {}
    for node in program["graph_module"]["graph"]["nodes"]:
        prefix, _, operator = node["target"].partition("torch.ops.")
        found: Any = torch.ops
        for part in operator.split(".") if operator and not prefix else ():
            found = getattr(found, part, None)
            if found is None:
                unknown.setdefault(operator, node.get("name") or f"of {operator}")
                break
    return unknown


def core_program(program: Any, path: Path) -> Any:
    """The program in core operators, fed with tensors only.

    Arguments that were None or plain numbers when the model was exported are part of the graph,
    so nothing is fed for them.

    Raises:
        TunerError: PyTorch cannot decompose it, or it is one that a compiled model cannot stand
            for: it is in training mode, draws random numbers or changes its own buffers.
    """
    _forget_derived_ranges(program)
    try:
        with hush():
            core = program.run_decompositions(_decompositions(program))
    except Exception as error:  # decompositions raise whatever they meet
        raise TunerError(f"{path}: PyTorch cannot decompose it: {first_line(error)}") from error
    _refuse_training(core, path)
    _refuse_mutation(core, path)
    _drop_constant_arguments(core, path)
    return core


def _decompositions(program: Any) -> dict[Any, Any]:
    """Formulas by operator: PyTorch's, and of what its quantizers write."""
    import torch

    return {**torch.export.default_decompositions(), **list_formulas(program)}


def _forget_derived_ranges(program: Any) -> None:
    """Drop the ranges of dimensions computed from others: they follow from those of the others.

    PyTorch reads them back from an archive in a form that it cannot decompose.
    """
    import torch

    values = [node.meta.get("val") for node in program.graph.nodes]
    sizes = [size for value in values for size in getattr(value, "shape", ())]
    known = [size.node.shape_env.var_to_range for size in sizes if isinstance(size, torch.SymInt)]
    for ranges in (program.range_constraints, *known):
        for dim in [d for d in ranges if not d.is_Symbol]:
            del ranges[dim]


def _refuse_training(program: Any, path: Path) -> None:
    import torch

    for node in operators(program):
        named = f"{path}: operator {node.target} (node {node.name})"
        if node.target.__name__ in _TRAINED_NORMS:
            raise TunerError(
                f"{named} is a batch norm in training mode; call model.eval() before exporting"
            )
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise TunerError(
                f"{named} draws random numbers, so there is no output to compare with; "
                "model.eval() before exporting takes dropout out"
            )


def _refuse_mutation(program: Any, path: Path) -> None:
    from torch.export.graph_signature import OutputKind

    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.BUFFER_MUTATION:
            raise TunerError(
                f"{path}: each run changes the buffer {spec.target}, but a compiled model keeps "
                "no state; make it an input and an output"
            )


def _drop_constant_arguments(program: Any, path: Path) -> None:
    from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument

    specs = program.graph_signature.input_specs
    for spec in [s for s in specs if s.kind is InputKind.USER_INPUT]:
        if isinstance(spec.arg, TensorArgument):
            continue
        (node,) = (n for n in program.graph.nodes if n.name == spec.arg.name)
        if not isinstance(spec.arg, ConstantArgument) or node.users:
            raise TunerError(f"{path}: input {spec.arg.name} is no tensor, which is not supported")
        program.graph.erase_node(node)
        specs.remove(spec)


def operators(program: Any) -> list[Any]:
    """The nodes of a program that call an operator, those in branches included."""
    from torch.fx import GraphModule

    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, GraphModule)]
    return [node for graph in graphs for node in graph.nodes if node.op == "call_function"]


def list_operators(unknown: dict[str, str]) -> str:
    """The operators of a message, each with its node."""
    plural = "operators" if len(unknown) > 1 else "operator"
    return f"{plural} " + ", ".join(f"{op} (node {node})" for op, node in unknown.items())
