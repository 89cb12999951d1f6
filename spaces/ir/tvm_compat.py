"""The one file that knows those names of TVM that change between its versions.

Written for 0.27: parameters of a PrimFunc are buffers themselves, a Relax expression's type is
`ty`, structural hashing lives in `tvm_ffi`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

IS_SCHEDULED = "tirx.is_scheduled"
"""Attribute of a function that no other pass or tuner should schedule again."""

GLOBAL_SYMBOL = "global_symbol"
"""Attribute that holds a function's name in a compiled library; private functions lack it."""

PART_OF = "tuner.part_of"
"""Attribute of a function that another function of its module calls: the caller's name."""

NO_ALIAS = "tirx.noalias"
"""Attribute that promises that no two parameters share memory."""

CODEGEN = "Codegen"
"""Attribute of a graph that a code generator of this name is to compile."""

ORIGIN = "tuner.origin"
"""Attribute of a scheduled function: where its schedule came from."""

LAYOUT_FREE = "layout_free_buffers"
"""Attribute with the positions of a program's parameters that are constants."""

PREPROC = "meta_schedule.layout_rewrite_preproc"
"""Annotation of a block that packs a constant operand and is run ahead of time."""

PARTITION_HINT = "pragma_loop_partition_hint"
"""Annotation of a loop whose ragged end TVM is to split off."""

LOWER_BOUNDS = "tir_var_lower_bound"
"""Attribute of a graph: the least value of symbolic dimensions, by their names."""

UPPER_BOUNDS = "tir_var_upper_bound"
"""Attribute of a graph: the largest value of symbolic dimensions, by their names."""

IF_THEN_ELSE = "prim.if_then_else"
"""Name of the operator that evaluates one of two values, as a condition says."""

LARGEST_INDEX = 2**31 - 1
"""The largest dimension that programs are compiled for."""

STAYS = "disable_lower_builtin"
"""Annotation of an allocation that must not be replaced by a call to the runtime."""

SPATIAL, REDUCED = 0, 2
"""Kinds of a block's axes, as `int(axis.iter_type)` gives them."""

SCHEDULABLE = "s_tir"
"""Attribute of a tensor program that may have blocks, and so a schedule."""

BUILD_PIPELINE = "default_build"
"""Relax pipeline that builds a lowered module as it is; TVM's default one fuses it once more."""


def without_origins(module: Any) -> Any:
    """A module without notes on where its schedules came from, which hold times."""
    from tvm.ir import IRModule

    result = IRModule(module.functions, attrs=module.attrs, global_infos=module.global_infos)
    for variable, function in module.functions.items():
        if attribute(function, ORIGIN) is not None:
            result.update_func(variable, function.without_attr(ORIGIN))
    return result


def is_compiled(built: Any) -> bool:
    """Whether it is a compiled module."""
    from tvm.runtime import Module

    return isinstance(built, Module)


def is_prim_func(function: Any) -> bool:
    """Whether a function of a module is a tensor program."""
    from tvm.tirx import PrimFunc

    return isinstance(function, PrimFunc)


def is_relax_function(function: Any) -> bool:
    """Whether a function of a module is a graph of calls."""
    from tvm.relax import Function

    return isinstance(function, Function)


def operator_name(expression: Any) -> str:
    """Name of the operator that an expression of a graph calls, as `relax.add`; else empty."""
    from tvm.ir import Op
    from tvm.relax import Call

    if not isinstance(expression, Call) or not isinstance(expression.op, Op):
        return ""
    return str(expression.op.name)


def read_permutation(expression: Any) -> tuple[int, ...] | None:
    """The order in which a call puts its operand's axes; None where it does not permute them."""
    if operator_name(expression) != "relax.permute_dims":
        return None
    rank = len(tensor_dims(expression) or ())
    axes = expression.attrs.axes
    return tuple(range(rank))[::-1] if axes is None else tuple(int(a) % rank for a in axes)


def variable_name(expression: Any) -> str:
    """Name of a variable of a graph; empty of anything else."""
    return str(getattr(expression, "name", None) or "")


def tensor_dims(expression: Any) -> list[Any] | None:
    """Dimensions of an expression of a graph; None where it is no tensor of known rank."""
    from tvm.relax import TensorType

    return param_dims(expression) if isinstance(expression.ty, TensorType) else None


def tensor_itemsize(expression: Any) -> int:
    """Bytes of one element of a tensor; at least 1."""
    return max(1, element_bits(expression.ty.dtype) // 8)


def with_attrs_of_graph(function: Any, other: Any) -> Any:
    """A graph with the attributes of another added."""
    for name, value in dict(other.attrs or {}).items():
        function = function.with_attr(name, value)
    return function


def is_constant(expression: Any) -> bool:
    """Whether an expression of a graph is a constant tensor."""
    from tvm.ir import GenericConst

    return isinstance(expression, GenericConst)


def is_call_tir(expression: Any) -> bool:
    """Whether an expression of a graph is a call to a tensor program."""
    from tvm.ir import Op
    from tvm.relax import Call

    return isinstance(expression, Call) and expression.op == Op.get("relax.call_tir")


def prim_funcs(module: Any) -> list[tuple[str, Any]]:
    """The tensor programs of a module by name, in the order of their names."""
    found = [(gv.name_hint, f) for gv, f in module.functions.items() if is_prim_func(f)]
    return sorted(found, key=lambda pair: str(pair[0]))


def has_relax(module: Any) -> bool:
    """Whether a module holds a graph, and not only tensor programs."""
    return any(is_relax_function(f) for f in module.functions.values())


def sblocks(function: Any) -> list[Any]:
    """All blocks of a tensor program, outer before inner."""
    import tvm
    import tvm_ffi

    found: list[Any] = []
    visit = (tvm.s_tir.SBlock, lambda block: found.append(block))
    tvm_ffi.structural_walk(function.body, visit)
    return found


def attribute(function: Any, name: str) -> Any:
    """An attribute of a function, None where it has no such attribute."""
    return function.attrs[name] if function.attrs and name in function.attrs else None


def with_attrs_of(function: Any, other: Any) -> Any:
    """A PrimFunc with the attributes of another in place of its own."""
    from tvm.tirx import PrimFunc

    return PrimFunc(function.params, function.body, function.ret_type, other.attrs)


def param_shape(param: Any) -> list[int | str] | None:
    """Shape of a parameter, of a PrimFunc or of a Relax function.

    Returns:
        An int for each known dimension and a text for each symbolic one; None where the
        parameter is no tensor, or one of unknown rank.
    """
    shape = param_dims(param)
    if shape is None:
        return None
    return [value if (value := as_int(dim)) is not None else dim_name(dim) for dim in shape]


def dim_name(dim: Any) -> str:
    """A symbolic dimension as text; a variable's own name, which TVM prints changed at times."""
    from tvm.ir import Var

    return str(dim.name) if isinstance(dim, Var) else str(dim)


def param_dims(param: Any) -> list[Any] | None:
    """Like `param_shape`, with TVM's own expressions."""
    shape = getattr(param.ty, "shape", None)
    if shape is None:
        return None
    return list(getattr(shape, "values", shape))


def element_bits(dtype: Any) -> int:
    """Bits of an element type; those of a byte for a type that names none, such as bool."""
    digits = re.search(r"\d+", str(dtype))
    return int(digits[0]) if digits else 8


def stage_blocks(schedule: Any) -> list[Any]:
    """The blocks right under the root of a schedule's one function, in order."""
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def param_dtype(param: Any) -> str:
    """Element type of a parameter that is a tensor."""
    return str(param.ty.dtype)


def as_int(dim: Any) -> int | None:
    """The value of a dimension, None where it is symbolic."""
    if isinstance(dim, int):
        return dim
    from tvm.tirx import IntImm

    return int(dim.value) if isinstance(dim, IntImm) else None


def structural_hash_hex(node: Any) -> str:
    """Structural hash as 16 hexadecimal digits; equal in every process for equal programs."""
    from tvm_ffi import structural_hash

    return f"{structural_hash(node) & (2**64 - 1):016x}"


def normalize(function: Any, *, symbol: str | None = "main") -> Any:
    """A module whose only function, named "main", is this PrimFunc.

    Args:
        symbol: global symbol that it gets; None keeps its own where it has one, by which TVM's
            databases know a function.
    """
    from tvm.ir import IRModule

    kept = attribute(function, GLOBAL_SYMBOL) if symbol is None else None
    function = function.with_attr(GLOBAL_SYMBOL, kept or symbol or "main")
    return IRModule({"main": function.with_attr(NO_ALIAS, True)})


def abandon(builder: Any) -> None:
    """Close the block that a `relax.BlockBuilder` has left open after an error in its function, or
    it complains on standard error when it is destroyed."""
    builder._end_block()


def list_onnx_operators() -> frozenset[str]:
    """Operators of ONNX that TVM's importer can convert."""
    from tvm.relax.frontend.onnx import onnx_frontend

    return frozenset(onnx_frontend._get_convert_map()) | {"Constant"}


def onnx_attributes(node: Any) -> dict[str, Any]:
    """Attributes of a node of ONNX, as converters of TVM's importer read them."""
    from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

    found: dict[str, Any] = ONNXGraphImporter._parse_attr(None, node.attribute)
    return found


def onnx_converted(
    builder: Any, node: Any, operands: Iterable[Any], attributes: dict[str, Any], opset: int
) -> Any:
    """A node of ONNX as TVM's importer converts it, normalised."""
    from tvm import relax
    from tvm.relax.frontend.onnx import onnx_frontend

    attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
    convert = onnx_frontend._get_convert_map()[node.op_type].get_converter(opset)
    inputs = onnx_frontend.onnx_input(operands)
    made = convert(builder, inputs, attributes, [{}, {}])
    return builder.normalize(made) if isinstance(made, relax.Expr) else made


def list_torch_operators() -> frozenset[str]:
    """Operators of PyTorch, as `relu.default`, that TVM's importer can convert."""
    from tvm.relax.frontend.torch import exported_program_translator as translator

    return frozenset(translator.ExportedProgramImporter().convert_map)


def torch_imported(program: Any, converters: Mapping[str, Any]) -> tuple[Any, dict[Any, Any]]:
    """An exported program in core operators as a module, and what became of each of its nodes."""
    from tvm.relax.frontend.torch import exported_program_translator as translator

    importer = translator.ExportedProgramImporter()
    module = importer.from_exported_program(
        program,
        keep_params_as_input=False,
        unwrap_unit_return_tuple=True,
        no_bind_return_tuple=False,
        custom_convert_map=dict(converters),
    )
    return module, importer.env


def stock_converter(importer: Any, name: str) -> Any:
    """What TVM's importer of PyTorch converts an operator with, where we have another converter:
    a function of the node."""
    return importer.create_convert_map()[name]


def llvm_version() -> str:
    """Major version of the LLVM that TVM generates CPU code with; empty where it has none."""
    from tvm.target import codegen

    return str(codegen.llvm_version_major(allow_none=True) or "")


def host_cpu() -> str:
    """LLVM's name for this machine's CPU, such as `znver4`."""
    from tvm.target import codegen

    return str(codegen.llvm_get_system_cpu())


def host_features() -> dict[str, bool]:
    """Features that the processor and the operating system report as there or not, in LLVM's words.

    On x86 these are all that LLVM knows, on ARM some; none where LLVM cannot ask.
    """
    import tvm

    ask = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures", allow_missing=True)
    found = None if ask is None else ask()
    return {} if found is None else {str(name): bool(there) for name, there in found.items()}


def host_vendor() -> str:
    """The maker of this machine's x86 processor: `intel`, `amd`, or another word."""
    from tvm.target import codegen

    return str(codegen.llvm_get_system_x86_vendor())


def cpu_features(target: Any) -> frozenset[str]:
    """All features that LLVM uses in code for an llvm target, and those that tune the code."""
    from tvm.target import codegen

    return frozenset(str(feature) for feature in codegen.llvm_get_cpu_features(target))


def host_triple() -> str:
    """LLVM's triple of this machine, such as `x86_64-unknown-linux-gnu`."""
    from tvm.target import codegen

    return str(codegen.llvm_get_system_triple())


def is_known_cpu(name: str, triple: str) -> bool:
    """Whether LLVM knows a CPU of this name; it would ignore an unknown one."""
    from tvm.target import codegen

    return bool(codegen.llvm_is_valid_cpu(name, triple))


def keep_error_kind(kind: type[Exception]) -> None:
    """Have errors of this class keep it when they pass through TVM's C++ side."""
    import tvm_ffi

    tvm_ffi.register_error(kind.__name__, kind)


def refusal_kinds() -> tuple[type[Exception], ...]:
    """Classes of errors by which TVM says that a program cannot be done as asked."""
    from tvm.error import InternalError, OpError
    from tvm.s_tir import ScheduleError

    return (ScheduleError, InternalError, OpError)


def has_cpu_feature(target: Any, feature: str) -> bool:
    """Whether LLVM would use a feature, such as `avx512f`, for an llvm target."""
    from tvm.target import codegen

    return bool(codegen.target_has_features(feature, target))
