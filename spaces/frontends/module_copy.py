"""Modules of TVM in files, their weights apart: written, and read without running any code.

`module.json` is TVM's JSON, in which tensors would be text of a third more bytes, slowly made. So
those of the graph "main" lie beside it in `module.params`, TVM's own format of named tensors, and
are parameters of "main" in the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spaces.ir import tvm_compat
from tuner.errors import TunerError, first_line

PARAMS = ".params"
_LEAST_BYTES = 1024
"""Smaller tensors stay in the JSON: axes, shapes, scalars."""


def save_module(module: Any, path: Path) -> None:
    """Write a module to `path`, and its weights beside it.

    Raises:
        OSError: a file cannot be written.
    """
    import tvm

    bare, weights = _without_weights(module)
    path.write_text(tvm.ir.save_json(bare))
    beside = path.with_suffix(PARAMS)
    beside.unlink(missing_ok=True)
    if weights:
        tvm.runtime.save_param_dict_to_file(weights, str(beside))


def load_module(path: Path) -> Any:
    """The module that `save_module` wrote.

    Raises:
        TunerError: a file is missing, or it is none such.
    """
    import tvm

    beside = path.with_suffix(PARAMS)
    try:
        module = tvm.ir.load_json(path.read_text())
        if not beside.exists():
            return module
        weights = tvm.runtime.load_param_dict_from_file(str(beside))
        return _with_weights(module, dict(weights))
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        raise TunerError(f"{path}: not a module that TVM can read: {first_line(error)}") from error


def _without_weights(module: Any) -> tuple[Any, dict[str, Any]]:
    """A module whose graph takes its large constants as parameters, and these by name."""
    if not tvm_compat.has_relax(module) or "main" not in [v.name_hint for v in module.functions]:
        return module, {}
    import tvm
    from tvm import relax
    from tvm.ir import GenericConst
    from tvm_ffi import structural_map

    main = module["main"]
    prefix = "weight_"
    while any(str(param.name).startswith(prefix) for param in main.params):
        prefix = f"_{prefix}"
    found: dict[tuple[int, str], tuple[Any, Any]] = {}

    def parameter(constant: Any) -> Any:
        tensor = constant.value
        if not isinstance(tensor, tvm.runtime.Tensor) or _bytes(tensor) < _LEAST_BYTES:
            return constant
        # One that is used twice is one tensor.
        place = (int(tensor.data_ptr()), str(constant.ty))
        if place not in found:
            found[place] = (relax.Var(f"{prefix}{len(found)}", constant.ty), tensor)
        return found[place][0]

    made = structural_map(main, (GenericConst, parameter))
    if not found:
        return module, {}
    params = [*made.params, *(var for var, _ in found.values())]
    bare = _with_main(module, made, params)
    return bare, {str(var.name): tensor for var, tensor in found.values()}


def _with_weights(module: Any, weights: Mapping[str, Any]) -> Any:
    """A module with the last parameters of its graph bound to weights.

    TVM's own `BindParams` would derive types anew, and the module would not be the one it was.
    """
    from tvm.ir import GenericConst, Var
    from tvm_ffi import structural_map

    main = module["main"]
    bound = {v: GenericConst(weights[v.name], v.ty) for v in main.params if v.name in weights}
    params = [param for param in main.params if param not in bound]
    bare = _with_main(module, main, params)["main"]
    return _with_main(
        module, structural_map(bare, (Var, lambda var: bound.get(var, var))), params=None
    )


def _with_main(module: Any, main: Any, params: Sequence[Any] | None) -> Any:
    """A module with another graph, of other parameters if they are given."""
    from tvm import relax
    from tvm.ir import IRModule

    if params is not None:
        main = relax.Function(params, main.body, main.ret_ty, main.is_pure, main.attrs)
    made = IRModule(module.functions, attrs=module.attrs, global_infos=module.global_infos)
    made.update_func(made.get_global_var("main"), main)
    return made


def _bytes(tensor: Any) -> int:
    size = tvm_compat.element_bits(tensor.dtype) // 8
    for extent in tensor.shape:
        size *= int(extent)
    return size
