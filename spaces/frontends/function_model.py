"""Models written in Python: a function that returns an IRModule or a PrimFunc."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from spaces.frontends.module_source import ModuleSource, read_module
from spaces.frontends.shape_var import DynamicProgram, ShapeVar
from spaces.intrinsics.script_frames import know_frames_of_no_file
from spaces.ir import tvm_compat
from tuner.dynamic.shapes import NO_DOMAIN, Domain
from tuner.errors import TunerError, describe_error, first_line

Args = Sequence[tuple[str, "str | int | float | ShapeVar"]]
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def read_function(
    source: str,
    args: Args = (),
    domain: Domain = NO_DOMAIN,
    on_found: Callable[[], None] = lambda: None,
) -> ModuleSource:
    """Call `path.py:function` or `package.module:function` and take what it returns.

    Args:
        args: keyword arguments, converted as the function annotates them.
        domain: of dimensions that stay symbolic. A function with a parameter of such a name gets a
            `ShapeVar` for it.
        on_found: called before the function is.

    Raises:
        TunerError: anything that keeps the function from giving an IRModule or a PrimFunc.
    """
    where, _, name = source.rpartition(":")
    found = _find(where, name)
    value = _value(found, source, [*args, *_shape_vars(found, args, domain)], on_found)
    return read_program(value, source, name)


def read_program(value: Any, source: str, name: str) -> ModuleSource:
    """Take an IRModule, a PrimFunc, a list of `te.Tensor`s, or one of these with its dimensions.

    Args:
        source: what gave it, for messages.
        name: of the model, and of a program that has none.

    Raises:
        TunerError: it is none of these, or one of its inputs is no tensor.
    """
    domain = NO_DOMAIN
    if isinstance(value, DynamicProgram):
        domain, value = value.domain(), value.program
    return read_module(_module_of(value, source, name), name, "function", domain=domain)


def check_function(source: str, args: Args = (), domain: Domain = NO_DOMAIN) -> None:
    """Look for a function and for its arguments; it is not called.

    Raises:
        TunerError: it is missing, or does not take these.
    """
    where, _, name = source.rpartition(":")
    found = _find(where, name)
    _keywords(found, source, [*args, *_shape_vars(found, args, domain)])


def _shape_vars(found: Any, args: Args, domain: Domain) -> list[tuple[str, ShapeVar]]:
    """Symbolic dimensions that a function takes as arguments of their names."""
    if not inspect.isroutine(found):
        return []
    taken = set(inspect.signature(found).parameters) - {name for name, _ in args}
    return [(name, ShapeVar(name, values)) for name, values in domain.dims if name in taken]


def _find(where: str, name: str) -> Any:
    """What is called `name` in a file or an importable module."""
    know_frames_of_no_file()
    module = _load_file(Path(where)) if where.endswith(".py") else _import(where)
    if not hasattr(module, name):
        here = [n for n, v in vars(module).items() if inspect.isfunction(v) and n[0] != "_"]
        listed = f"; it has {', '.join(here)}" if here else ""
        raise TunerError(f"{where} has no function {name}{listed}")
    return getattr(module, name)


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise TunerError(f"{path}: no such file")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"_model_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TunerError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    # TVMScript looks the module of a function up while it parses it.
    sys.modules[name] = module
    try:
        with _importable(path.resolve().parent):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # user code may raise anything
        del sys.modules[name]
        raise TunerError(f"{path} does not load: {describe_error(error)}") from error
    return module


def _import(name: str) -> Any:
    try:
        with _importable(Path.cwd()):
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise TunerError(f"{name} cannot be imported: {describe_error(error)}") from error


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Have a folder's modules importable for a while."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _value(found: Any, source: str, args: Args, on_found: Callable[[], None]) -> Any:
    """The result of the call; a ready-made program stands for itself."""
    keywords = _keywords(found, source, args)
    if not inspect.isroutine(found):
        return found
    on_found()
    try:
        return found(**keywords)
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise TunerError(f"{source} failed: {describe_error(error)}") from error


def _keywords(found: Any, source: str, args: Args) -> dict[str, Any]:
    """What to call a function with; nothing for a ready-made program."""
    if inspect.isroutine(found):
        return convert_args(found, source, args)
    if args:
        raise TunerError(f"{source} is no function, so it takes no --arg")
    return {}


def convert_args(function: Callable[..., Any], source: str, args: Args) -> dict[str, Any]:
    """Arguments as a function's annotations want them.

    Raises:
        TunerError: an argument is unknown, missing or of the wrong type.
    """
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, SyntaxError):
        parameters = inspect.signature(function).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = [
        n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    keywords = {}
    for name, value in args:
        if name not in named and not open_ended:
            takes = ", ".join(named) or "none"
            raise TunerError(f"--arg {name}: {source} has no such argument; it takes {takes}")
        wanted = parameters[name].annotation if name in named else inspect.Parameter.empty
        keywords[name] = _convert(name, value, wanted)
    missing = [n for n in named if parameters[n].default is inspect.Parameter.empty]
    missing = [n for n in missing if n not in keywords]
    if missing:
        listed = " ".join(_ask(n, parameters[n].annotation) for n in missing)
        raise TunerError(f"{source} needs more arguments: {listed}")
    return keywords


def _ask(name: str, wanted: Any) -> str:
    return f"--dim {name}=1..64" if _is_dimension(wanted) else f"--arg {name}=..."


def _is_dimension(wanted: Any) -> bool:
    """Whether a parameter is annotated as a dimension that stays symbolic."""
    return wanted is ShapeVar or str(wanted).rpartition(".")[2] == ShapeVar.__name__


def _convert(name: str, value: str | int | float | ShapeVar, wanted: Any) -> Any:
    if isinstance(value, ShapeVar):
        return value
    if _is_dimension(wanted):
        raise TunerError(
            f"--arg {name}={value}: it is a dimension that stays symbolic: give the sizes to tune "
            f"for, --dim {name}=1..64"
        )
    wanted = {"int": int, "float": float, "str": str, "bool": bool}.get(wanted, wanted)
    if wanted not in (int, float, str, bool):
        return value
    try:
        if wanted is bool:
            return _BOOLS[str(value).lower()]
        if wanted is int and isinstance(value, float) and value != int(value):
            raise ValueError(value)
        return wanted(value)
    except (KeyError, ValueError, OverflowError):
        raise TunerError(f"--arg {name}={value}: not of type {wanted.__name__}") from None


def _module_of(value: Any, source: str, name: str) -> Any:
    from tvm.ir import IRModule

    if isinstance(value, IRModule):
        return value
    if is_tensors(value):
        value = _computation(value, source)
    if tvm_compat.is_prim_func(value):
        symbol = str(tvm_compat.attribute(value, tvm_compat.GLOBAL_SYMBOL) or name)
        return IRModule({symbol: value.with_attr(tvm_compat.GLOBAL_SYMBOL, symbol)})
    kind = type(value).__name__
    raise TunerError(f"{source} gave {kind}, but an IRModule or a PrimFunc is needed")


def is_tensors(value: Any) -> bool:
    """Whether something is a list of tensor expressions: the inputs and outputs of a program."""
    from tvm import te

    listed = isinstance(value, list | tuple)
    return bool(listed and value and all(isinstance(one, te.Tensor) for one in value))


def _computation(tensors: Sequence[Any], source: str) -> Any:
    from tvm import te

    try:
        return te.create_prim_func(list(tensors))
    except Exception as error:  # TVM raises many kinds on what is no computation
        raise TunerError(f"{source}: these tensors make no program: {first_line(error)}") from error
