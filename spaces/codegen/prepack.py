"""Constant weights, packed once: when a model is compiled, never when it runs.

A schedule asks for it with a block of its own, right under the root, that copies a constant operand
into another layout and carries the annotation `meta_schedule.layout_rewrite_preproc`. The attribute
`layout_free_buffers` of a program names its constant operands.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from spaces.ir import tvm_compat

COMPUTE = "main"
PREPACK = "prepack"

_KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class Packed:
    """One operand in its packed form.

    Attributes:
        position: position of the program's parameter that it replaces.
    """

    position: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Packing:
    """The parameters of the function `prepack`: its sources, then the operands that it fills.

    Attributes:
        sources: positions of the program's parameters that it reads, in its order.
        packed: the operands that it fills, in its order.
    """

    sources: tuple[int, ...]
    packed: tuple[Packed, ...]

    def to_json(self) -> str:
        """The packing as text that `from_json` reads."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Packing:
        """The packing that `to_json` wrote."""
        data = json.loads(text)
        packed = tuple(Packed(p["position"], tuple(p["shape"]), p["dtype"]) for p in data["packed"])
        return Packing(tuple(data["sources"]), packed)


@dataclass(frozen=True, slots=True)
class Split:
    """A scheduled program in two parts.

    Attributes:
        module: functions "main", which takes packed operands in place of the program's own, and
            "prepack", which makes them.
    """

    module: Any
    packing: Packing


def packs(function: Any) -> bool:
    """Whether a scheduled program packs operands in a block of its own."""
    return bool(_preproc_blocks(function))


def split(module: Any) -> Split | None:
    """Take the packing out of a scheduled program.

    Args:
        module: its one function "main" writes its last parameters and no others.

    Returns:
        None where the program packs nothing.

    Raises:
        ValueError: it packs an operand that is no constant, or reads a packed one elsewhere too.
        Exception: whatever TVM throws at a packing block that is not right under the root.
    """
    function = module[COMPUTE]
    if not packs(function):
        return None
    check_packing(function)
    from tvm.relax.transform import SplitLayoutRewritePreproc

    graph = SplitLayoutRewritePreproc()(_one_call(function))
    compute, prepack = graph[f"{_KERNEL}_prepacked"], graph[f"{_KERNEL}_weight_prepack"]
    from tvm.ir import IRModule

    parts = {COMPUTE: compute, PREPACK: prepack}
    symbols = {n: f.with_attr(tvm_compat.GLOBAL_SYMBOL, n) for n, f in parts.items()}
    return Split(IRModule(symbols), _packing(graph["graph"]))


def check_packing(function: Any) -> None:
    """Check that a scheduled program only packs operands that can be packed ahead.

    Raises:
        ValueError: it packs an operand that is no constant, or reads a packed one elsewhere too.
    """
    blocks = _preproc_blocks(function)
    sources = [block.reads[0].source for block in blocks]
    free = {int(i) for i in tvm_compat.attribute(function, tvm_compat.LAYOUT_FREE) or ()}
    for source in sources:
        positions = {i for i, p in enumerate(function.params) if p.same_as(source)}
        if not positions & free:
            raise ValueError(f"{source.name} is packed ahead but is no constant")
    for block in tvm_compat.sblocks(function):
        if any(block.same_as(b) for b in blocks):
            continue
        for region in block.reads:
            if any(region.source.same_as(s) for s in sources):
                raise ValueError(f"{region.source.name} is packed ahead but read unpacked too")


def pack_weights(module: Any) -> Any:
    """Pack the constant operands of a graph's scheduled programs now, at compile time.

    In order: `SplitLayoutRewritePreproc` for programs that pack, `FoldConstant`,
    `DeadCodeElimination`. A module with nothing to pack comes back as it is.

    Raises:
        ValueError: see `check_packing`.
    """
    programs = [f for _, f in tvm_compat.prim_funcs(module) if packs(f)]
    if not programs or not tvm_compat.has_relax(module):
        return module
    for function in programs:
        check_packing(function)
    from tvm.ir.transform import Sequential
    from tvm.relax import transform

    tidy = Sequential([transform.FoldConstant(), transform.DeadCodeElimination()])
    return tidy(_split_programs(module))


def _split_programs(module: Any) -> Any:
    """A module with the packing of its programs in functions of their own.

    TVM's pass does not see a program without packing: it takes none whose body is not made of
    blocks, as one that chooses among kernels.
    """
    from tvm.ir import IRModule
    from tvm.relax.transform import SplitLayoutRewritePreproc

    def passed_by(function: Any) -> bool:
        return not tvm_compat.is_relax_function(function) and not packs(function)

    seen = {gv: f for gv, f in module.functions.items() if not passed_by(f)}
    kept = {gv: f for gv, f in module.functions.items() if passed_by(f)}
    split_ones = SplitLayoutRewritePreproc()(IRModule(seen))
    functions = {**split_ones.functions, **kept}
    return IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _preproc_blocks(function: Any) -> list[Any]:
    return [b for b in tvm_compat.sblocks(function) if b.annotations.get(tvm_compat.PREPROC)]


def _one_call(function: Any) -> Any:
    """A graph that calls a program once, with the same parameters."""
    from tvm import relax

    written = _count_outputs(function)
    params = [relax.Var(f"p{i}", _tensor_type(p)) for i, p in enumerate(function.params)]
    inputs, outputs = params[:-written], params[-written:]
    builder = relax.BlockBuilder()
    program = builder.add_func(function.without_attr(tvm_compat.GLOBAL_SYMBOL), _KERNEL)
    with builder.function("graph", inputs):
        with builder.dataflow():
            types = [output.ty for output in outputs]
            call = relax.call_tir(program, inputs, types[0] if written == 1 else types)
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()


def _count_outputs(function: Any) -> int:
    """The number of outputs, which are the last parameters, as in every program of a graph."""
    from spaces.ir.accesses import find_written

    number, written = len(function.params), find_written(function)
    count = len(written)
    if not count or written != set(range(number - count, number)):
        raise ValueError("operands are packed ahead, but outputs are not the last parameters")
    return count


def _tensor_type(param: Any) -> Any:
    from tvm import relax

    return relax.TensorType(tvm_compat.param_dims(param), tvm_compat.param_dtype(param))


def _packing(graph: Any) -> Packing:
    """Read the sources and the places of packed operands off a split graph."""
    from tvm import relax

    bindings = [b for block in graph.body.blocks for b in block.bindings]
    calls = [b for b in bindings if isinstance(b.value, relax.Call)]
    first, second = calls[0], calls[1]
    params = list(graph.params)
    types = list(getattr(first.var.ty, "fields", None) or [first.var.ty])
    # One packed operand is the call's result, several are items of it.
    numbers = {first.var: 0} if len(types) == 1 else {}
    for binding in bindings:
        if isinstance(binding.value, relax.TupleGetItem):
            numbers[binding.var] = int(binding.value.index)
    places = {
        numbers[value]: position
        for position, value in enumerate(second.value.args[1].fields)
        if value in numbers
    }
    packed = tuple(
        Packed(places[n], tuple(int(d) for d in ty.shape.values), str(ty.dtype))
        for n, ty in enumerate(types)
    )
    return Packing(tuple(params.index(a) for a in first.value.args[1].fields), packed)
