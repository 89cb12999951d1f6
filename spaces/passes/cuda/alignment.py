"""Vectors only where a device takes them: at multiples of their size, of elements in a row.

A device stops at any other address ("misaligned address"). TVM 0.27 asks before it reads a vector.
It does not before it writes one, nor before it copies one with cp.async, which it does even for
elements that are not next to each other. And it fails to write some that its rules ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import HALVES

_INJECTION = "s_tir.InjectPTXAsyncCopy"
"""TVM's pass that makes instructions of the copies in a scope."""
_SCOPE = "async_scope"
_STAGES = "software_pipeline_async_stages"
_SHARED = ("shared", "shared.dyn")
_SIZES = (4, 8, 16)
"""Bytes that cp.async copies (PTX ISA, "cp.async")."""
_MOST_PLACES = 4
_CONDITION = "tirx.if_then_else"


class CopyWatch:
    """Notes, while TVM's passes run, which functions copy ahead what no device can copy at once.

    Attributes:
        uneven: their names.
    """

    def __init__(self) -> None:
        self.uneven: list[str] = []

    def instrument(self) -> Any:
        """For a `PassContext`."""
        import tvm

        uneven = self.uneven

        @tvm.ir.instrument.pass_instrument
        class Before:
            def run_before_pass(self, module: Any, info: Any) -> None:
                if str(info.name) == _INJECTION:
                    uneven.extend(
                        name for name, f in tvm_compat.prim_funcs(module) if _is_uneven(f)
                    )

        return Before()


def without_copies_ahead(module: Any, names: Sequence[str]) -> Any:
    """A scheduled module in which some functions copy ahead with loads and stores."""
    import tvm
    from tvm_ffi import structural_mutate

    def plain(loop: Any, mutator: Any) -> Any:
        loop = mutator.default_mutate(loop)
        if _STAGES not in loop.annotations:
            return loop
        rest = {key: value for key, value in loop.annotations.items() if key != _STAGES}
        known = (loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, loop.thread_binding)
        return tvm.tirx.For(*known, rest)

    changed = {
        variable: f.with_body(structural_mutate(f.body, [(tvm.tirx.For, plain)]))
        if variable.name_hint in names
        else f
        for variable, f in module.functions.items()
    }
    return tvm.ir.IRModule(changed, attrs=module.attrs, global_infos=module.global_infos)


def narrow_stores(function: Any) -> Any:
    """A function after all passes, whose stores of vectors are at multiples of their size: others
    are made element by element.

    TVM does so of any index but a ramp, so a ramp is written as a sum with zeros.
    """
    import tvm
    from tvm_ffi import structural_mutate

    def store(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        index = node.indices[-1]
        if not isinstance(index, tvm.tirx.Ramp) or _is_whole(index):
            return node
        zero = rewrite.constant(0, index.base)
        index = tvm.tirx.Add(index, tvm.tirx.Broadcast(zero, index.lanes))
        return tvm.tirx.BufferStore(node.buffer, node.value, [*node.indices[:-1], index])

    return function.with_body(structural_mutate(function.body, [(tvm.tirx.BufferStore, store)]))


def without_odd_vectors(module: Any) -> Any:
    """A scheduled module without vectors that TVM fails to write: those of an odd number of halves,
    and those of an odd number of elements, or more than four, that are not in a row, whose places
    it computes as a vector of so many integers. Their elements are copied one by one."""
    import tvm
    from tvm_ffi import structural_mutate

    def single(loop: Any, mutator: Any) -> Any:
        loop = mutator.default_mutate(loop)
        lanes = tvm_compat.as_int(loop.extent) or 1
        is_vector = loop.kind == tvm.tirx.ForKind.VECTORIZED and lanes > 1
        is_odd = lanes % 2 == 1
        if not is_vector or not (is_odd or lanes > _MOST_PLACES):
            return loop
        if _is_row(loop) and not (is_odd and _has_halves(loop.body)):
            return loop
        known = (loop.loop_var, loop.min, loop.extent, tvm.tirx.ForKind.UNROLLED, loop.body)
        return tvm.tirx.For(*known, loop.thread_binding, loop.annotations)

    looks = [(tvm.tirx.For, single)]
    return rewrite.with_prim_funcs(module, lambda f: f.with_body(structural_mutate(f.body, looks)))


def _has_halves(statement: Any) -> bool:
    """Whether a statement stores floats of 16 bits."""
    import tvm
    from tvm_ffi import structural_walk

    found: list[str] = []
    structural_walk(
        statement, (tvm.tirx.BufferStore, lambda store: found.append(str(store.buffer.dtype)))
    )
    return any(dtype in HALVES for dtype in found)


def _is_row(loop: Any) -> bool:
    """Whether each axis of the blocks in a loop stands still, or goes on by one with each step."""
    import tvm
    from tvm_ffi import structural_walk

    blocks: list[Any] = []
    structural_walk(loop.body, (tvm.s_tir.SBlockRealize, blocks.append))
    analyzer, step = tvm.sym.Analyzer(), loop.loop_var
    analyzer.bind(step, tvm.ir.Range(0, loop.extent))
    first = [(step, rewrite.constant(0, step))]
    gone = (
        analyzer.simplify(value - rewrite.substitute(value, first))
        for block in blocks
        for value in block.iter_values
    )
    return all(each.same_as(step) or tvm_compat.as_int(each) == 0 for each in gone)


def _is_uneven(function: Any) -> bool:
    return any(
        not _is_whole(place)
        for scope in _async_scopes(function)
        for store, load in _copies(scope)
        for place in (store, load)
    )


def _async_scopes(function: Any) -> list[Any]:
    import tvm
    from tvm_ffi import structural_walk

    found: list[Any] = []

    def look(node: Any) -> None:
        if node.attr_key == _SCOPE:
            found.append(node.body)

    structural_walk(function.body, (tvm.tirx.AttrStmt, look))
    return found


def _copies(scope: Any) -> Iterator[tuple[Any, Any]]:
    """The places that vectors are copied to and from, where TVM makes instructions of that."""
    import tvm
    from tvm_ffi import structural_walk

    stores: list[Any] = []
    structural_walk(scope, (tvm.tirx.BufferStore, stores.append))
    for store in stores:
        load = store.value
        if tvm_compat.operator_name(load) == _CONDITION:
            load = load.args[1]
        if not isinstance(load, tvm.ir.TensorLoad) or store.buffer.scope() not in _SHARED:
            continue
        to, source = store.indices[-1], load.indices[-1]
        lanes = _lanes(source)
        size = lanes * tvm.DataType(str(load.source.dtype)).bits // 8
        if lanes > 1 and size in _SIZES and isinstance(source, tvm.tirx.Ramp):
            yield to, source


def _is_whole(index: Any) -> bool:
    """Whether an index is of elements in a row, from a multiple of their number on."""
    import tvm

    if isinstance(index, tvm.tirx.Add) and isinstance(index.b, tvm.tirx.Broadcast):
        # Of a tensor within a larger one, which begins so many elements after it.
        return _is_multiple(index.b.value, _lanes(index)) and _is_whole(index.a)
    if not isinstance(index, tvm.tirx.Ramp) or tvm_compat.as_int(index.stride) != 1:
        return False
    return _is_multiple(index.base, _lanes(index))


def _is_multiple(number: Any, lanes: int) -> bool:
    import tvm

    known = tvm.sym.Analyzer().modular_set(number)
    return int(known.coeff) % lanes == 0 and int(known.base) % lanes == 0


def _lanes(index: Any) -> int:
    import tvm

    return int(tvm.DataType(str(index.ty.dtype)).lanes)
