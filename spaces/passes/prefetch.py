"""Software prefetch of the next row while this one is computed.

Where several passes go over each row, the first of them waits for the row to come from memory, and
the last for the row that it writes. The hardware prefetcher follows a line of addresses by itself,
but a row of some kilobytes ends before it is far enough ahead. So in the second pass over a tensor,
whose row is in the nearest cache by then, the same elements of the next row are prefetched, and
those of this row that the last pass is going to write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat

AHEAD = "tuner.ahead"
"""Annotation of a loop over rows: the number of rows that prefetches are ahead."""

_SERIAL, _VECTORISED = 0, 2
_LINE_BYTES = 64
_READ, _WRITE = 0, 1
_KEEP_CLOSE, _DATA = 3, 1


@dataclass(frozen=True, slots=True)
class _Pass:
    """A loop over a row in vectors.

    Attributes:
        realize: the realisation of its block.
    """

    steps: Any
    lanes: Any
    realize: Any

    def placed(self, access: Any) -> list[Any]:
        """Indices of an access of the block, in terms of the loops around it."""
        return [rewrite.place_in_loops(self.realize, index) for index in access.indices]


def with_prefetches(function: Any) -> Any:
    """A scheduled PrimFunc that computes the same, with prefetches where loops are marked."""
    import tvm
    from tvm_ffi import structural_mutate

    def loop(node: Any, mutator: Any) -> Any:
        if AHEAD not in node.annotations:
            return mutator.default_mutate(node)
        return _fetching(node, int(node.annotations[AHEAD]), function.params)

    body = structural_mutate(function.body, [(tvm.tirx.For, loop)])
    return function if body.same_as(function.body) else function.with_body(body)


def _fetching(row: Any, ahead: int, params: Any) -> Any:
    """A loop over rows without its mark, which prefetches `ahead` rows ahead where it can."""
    from tvm.tirx import SeqStmt

    statements = list(row.body) if isinstance(row.body, SeqStmt) else [row.body]
    passes = [_pass(statement) for statement in statements]
    where, loads = _second(passes, row, params)
    if where is not None:
        second = passes[where]
        assert second is not None
        next_row = row.loop_var + rewrite.constant(ahead, row.loop_var)
        fetches = [
            fetch
            for load in loads
            for fetch in _fetches(second, second, load, load.source, _READ, row, next_row)
        ]
        fetches += _fetches_of_result(second, passes[-1], row, params)
        statements[where] = _with(second, fetches)
    marks = {key: value for key, value in row.annotations.items() if key != AHEAD}
    body = SeqStmt(statements) if len(statements) > 1 else statements[0]
    return rewrite.copy_loop(row, body, marks=marks)


def _pass(statement: Any) -> _Pass | None:
    """The pass over a row that a statement is; None where it is something else."""
    from tvm.s_tir import SBlockRealize
    from tvm.tirx import For

    if not isinstance(statement, For) or int(statement.kind) != _SERIAL:
        return None
    lanes = statement.body
    if not isinstance(lanes, For) or int(lanes.kind) != _VECTORISED:
        return None
    if not isinstance(lanes.body, SBlockRealize) or tvm_compat.as_int(lanes.extent) is None:
        return None
    return _Pass(statement, lanes, lanes.body)


def _second(passes: list[_Pass | None], row: Any, params: Any) -> tuple[int | None, list[Any]]:
    """The first pass that reads parameters which an earlier pass has read, and these reads."""
    read: list[Any] = []
    for number, one in enumerate(passes):
        loads = [] if one is None else _loads(one, row, params)
        again = [load for load in loads if rewrite.is_among(load.source, read)]
        if again:
            return number, again
        read += [load.source for load in loads]
    return None, []


def _loads(one: _Pass, row: Any, params: Any) -> list[Any]:
    """Reads of parameters that depend on the row and on the lane; one for each parameter."""
    import tvm
    import tvm_ffi

    found: list[Any] = []

    def look(load: Any) -> None:
        known = any(load.source.same_as(other.source) for other in found)
        if not known and rewrite.is_among(load.source, params):
            places = one.placed(load)
            if all(_moves(places, loop) for loop in (row, one.lanes)):
                found.append(load)

    tvm_ffi.structural_walk(one.realize.block.body, (tvm.ir.TensorLoad, look))
    return found


def _moves(indices: list[Any], loop: Any) -> bool:
    return any(rewrite.uses(index, [loop.loop_var]) for index in indices)


def _fetches_of_result(second: _Pass, last: _Pass | None, row: Any, params: Any) -> list[Any]:
    """Prefetches of the row that the last pass writes, where it takes the same steps."""
    from tvm.tirx import BufferStore

    if last is None:
        return []
    store = last.realize.block.body
    same = all(
        tvm_compat.as_int(mine.extent) == tvm_compat.as_int(its.extent) is not None
        for mine, its in ((second.steps, last.steps), (second.lanes, last.lanes))
    )
    if not same or not isinstance(store, BufferStore):
        return []
    if not rewrite.is_among(store.buffer, params):
        return []
    return _fetches(second, last, store, store.buffer, _WRITE, row, row.loop_var)


def _fetches(
    here: _Pass, there: _Pass, access: Any, buffer: Any, kind: int, row: Any, row_value: Any
) -> list[Any]:
    """Prefetches in one step of `here`: each cache line of an access of `there`, in a given row."""
    from tvm.tirx import BufferLoad, Evaluate, call_intrin, call_llvm_intrin, const

    line = max(1, _LINE_BYTES * 8 // tvm_compat.element_bits(tvm_compat.param_dtype(buffer)))
    lanes, places = there.lanes, there.placed(access)
    statements = []
    for lane in range(0, tvm_compat.as_int(lanes.extent) or 0, line):
        values = [
            (there.steps.loop_var, here.steps.loop_var),
            (lanes.loop_var, rewrite.constant(lane, lanes.loop_var)),
            (row.loop_var, row_value),
        ]
        element = BufferLoad(buffer, [rewrite.substitute(index, values) for index in places])
        address = call_intrin("handle", "tirx.address_of", element)
        how = (const(number, "int32") for number in (kind, _KEEP_CLOSE, _DATA))
        statements.append(Evaluate(call_llvm_intrin("void", "llvm.prefetch", address, *how)))
    return statements


def _with(one: _Pass, fetches: list[Any]) -> Any:
    """A pass whose steps each begin with some prefetches."""
    from tvm.tirx import SeqStmt

    return rewrite.copy_loop(one.steps, SeqStmt([*fetches, one.steps.body]))
