"""A model as the tuner sees it, from whatever the user named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spaces.frontends.declared import ModelKind, ModelSource, resolve, tie
from spaces.frontends.inputs import InputSpec, check_values
from tuner.dynamic.shapes import Domain, read_weights
from tuner.errors import TunerError, UsageError
from tuner.files.model_file import check_file
from tuner.request.model_spec import ModelSpec
from tuner.task import Instance, Shapes


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was read and imported.

    Attributes:
        name: for people: the file's stem or the function's name.
        kind: where it came from.
        module: a TVM IRModule; a Relax function "main", or tensor programs only.
        inputs: what it is fed, in order. For tensor programs all buffers, outputs included.
        content_hash: changes with anything that changes what is computed or its shapes.
        path: the file it was read from; None where it came from a function.
        shapes: instances of its symbolic dimensions that it is tuned for; empty without any.
        proto: of ONNX, where it came from memory and there is no file.
        torch_program: of PyTorch, the program, where it was read or given just now.
    """

    name: str
    kind: ModelKind
    module: Any
    inputs: tuple[InputSpec, ...]
    content_hash: str
    path: Path | None = None
    shapes: Shapes = ()
    proto: Any = None
    torch_program: Any = None


def load_model(spec: ModelSpec, on_found: Callable[[], None] = lambda: None) -> Model:
    """Read and import a model.

    Args:
        on_found: called once it is there and takes the arguments given, before what takes long.

    Raises:
        TunerError: whatever keeps it from being imported, in one line.
    """
    if spec.program is not None:
        return from_memory(spec, on_found)
    kind, domain = _kind_and_domain(spec)
    if kind == "function":
        from spaces.frontends.function_model import read_function

        return import_model(read_function(spec.source, spec.args, domain, on_found), spec, domain)
    path = Path(spec.source)
    if path.is_file():
        on_found()
    return import_model(_read_file(path, kind), spec, domain, path=path)


def _read_file(path: Path, kind: ModelKind) -> ModelSource:
    if kind == "onnx":
        from spaces.frontends.onnx.model import read_onnx_file

        return read_onnx_file(path)
    from spaces.frontends.pytorch.model import read_torch

    return read_torch(path)


def import_model(
    source: ModelSource,
    spec: ModelSpec,
    domain: Domain,
    *,
    path: Path | None = None,
    proto: Any = None,
) -> Model:
    """Import a model that was read.

    Args:
        spec: shapes of inputs, and values for them.
        domain: of the dimensions that stay symbolic, before what the model itself says.
        path, proto: see `Model`.

    Raises:
        TunerError: whatever keeps it from being imported, in one line.
    """
    domain = domain if domain.dims else source.declared.domain
    inputs = resolve(tie(source.declared, spec.ties), spec.shapes, domain)
    check_values(inputs, spec.inputs)
    shapes = domain.shapes()
    module = source.imported(inputs, domain)
    content = source.content_hash(module, inputs)
    program = source.torch_program
    return Model(source.name, source.kind, module, inputs, content, path, shapes, proto, program)


def from_memory(spec: ModelSpec, on_found: Callable[[], None] = lambda: None) -> Model:
    """A model that was imported already, see `spaces.frontends.memory_model`.

    Raises:
        TunerError: a value for one of its inputs cannot be read, or does not fit.
    """
    model: Model = spec.program
    on_found()
    check_values(model.inputs, spec.inputs)
    return model


def check_model(spec: ModelSpec) -> None:
    """Look for what keeps a model from being read, as far as that takes no time: no function is
    called, no graph is imported.

    Raises:
        TunerError: a file is missing, a function or one of its arguments, or weights do not match.
    """
    if spec.program is not None:
        from_memory(spec)
        return
    kind, domain = _kind_and_domain(spec)
    if kind == "function":
        from spaces.frontends.function_model import check_function

        check_function(spec.source, spec.args, domain)
    else:
        check_file(Path(spec.source))
    for name, value in spec.inputs:
        if isinstance(value, Path) and not value.is_file():
            raise TunerError(f"--input {name}: {value}: no such file")


def _kind_and_domain(spec: ModelSpec) -> tuple[ModelKind, Domain]:
    kind = model_kind(spec.source)
    if kind != "function" and spec.args:
        raise TunerError(f"--arg {spec.args[0][0]}: only a function takes arguments")
    return kind, domain_of(spec)


def domain_of(spec: ModelSpec) -> Domain:
    """The domain of the dimensions that stay symbolic, weights read.

    Raises:
        TunerError: the weights cannot be read, or do not match the dimensions.
    """
    if spec.weights is None:
        return Domain(spec.dims)
    if not spec.dims:
        raise UsageError("--weights: no --dim says what they are the weights of")
    domain = Domain(spec.dims, _weights(spec.weights, [name for name, _ in spec.dims]))
    domain.shapes()
    return domain


def _weights(weights: Path | Shapes, names: list[str]) -> dict[Instance, float]:
    if not isinstance(weights, Path):
        return dict(weights)
    try:
        text = weights.read_text()
    except (OSError, ValueError) as error:
        raise TunerError(f"--weights: cannot read {weights}: {error}") from error
    return read_weights(text, names)


def model_kind(source: str) -> ModelKind:
    """What a source names, from its text.

    Raises:
        TunerError: it is neither a known kind of file nor a function.
    """
    if source.endswith(".onnx"):
        return "onnx"
    if source.endswith(".pt2"):
        return "torch"
    if all(source.rpartition(":")):
        return "function"
    if Path(source).is_dir():
        check_file(Path(source))
    raise TunerError(
        f"{source}: not a model; give model.onnx, model.pt2, path.py:function or "
        "package.module:function"
    )
