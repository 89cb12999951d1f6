"""Facts about the loops of a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir.guard import Unsuitable
from spaces.ir.symbolic import is_symbolic, value_of
from spaces.templates.memory.stages import Axis


@dataclass(frozen=True, slots=True)
class Loops:
    """Loops of one schedule.

    Attributes:
        values: sizes of symbolic dimensions in the shape that is estimated.
    """

    schedule: Any
    values: Mapping[str, int]

    def extent(self, loop: Any) -> int:
        """Steps of a loop; in the shape of `values`, where they are symbolic."""
        steps = value_of(self.schedule.get(loop).extent, self.values)
        if steps is None:
            raise Unsuitable("a loop's extent is not known")
        return steps

    def is_symbolic(self, loop: Any) -> bool:
        """Whether a loop's extent is known only when the program runs."""
        return is_symbolic(self.schedule.get(loop).extent)

    def is_guarded(self, loop: Any) -> bool:
        """Whether a predicate on a loop's variable keeps the blocks in it within their tensors."""
        import tvm
        import tvm_ffi

        if not self.values:
            return False
        node = self.schedule.get(loop)
        found: list[Any] = []

        def look(var: Any) -> None:
            found.append(var)

        def look_into(realized: Any) -> None:
            tvm_ffi.structural_walk(realized.predicate, (tvm.ir.Var, look))

        tvm_ffi.structural_walk(node.body, (tvm.s_tir.SBlockRealize, look_into))
        return any(var.same_as(node.loop_var) for var in found)

    def is_single(self, loop: Any) -> bool:
        """Whether a loop has one step, whatever the shape."""
        return not self.is_symbolic(loop) and self.extent(loop) == 1

    def analysable(self, rows: list[Any]) -> tuple[list[Any], int]:
        """Rows in an order in which TVM can recover them from a fused loop, and how many to fuse.

        TVM cannot where it would have to divide by a symbolic extent, and then sets no start
        values of sums.
        """
        known = [loop for loop in rows if not self.is_symbolic(loop)]
        first, *others = [loop for loop in rows if self.is_symbolic(loop)] or [None]
        if first is None:
            return rows, len(rows)
        single = [loop for loop in known if self.is_single(loop)]
        more = [loop for loop in known if not self.is_single(loop)]
        return [*single, first, *more, *others], len(known) + 1

    def covers(self, loop: Any, axis: Axis, *, at_least: bool = False) -> bool:
        """Whether a loop runs over the whole of an axis (or over more, where it is fused)."""
        steps = self.extent(loop)
        return steps >= axis.extent if at_least else steps == axis.extent


def axes_of(schedule: Any, block: Any, loops: Sequence[Any]) -> list[int | None]:
    """For each loop the one axis of the block that it moves."""
    import tvm
    import tvm_ffi

    if not loops:
        return []
    variables = [schedule.get(loop).loop_var for loop in loops]
    node = schedule.get(list(schedule.get_loops(block))[-1]).body
    found: list[list[int]] = [[] for _ in loops]
    for number, value in enumerate(node.iter_values):

        def look(var: Any, number: int = number) -> None:
            for at, known in enumerate(variables):
                if var.same_as(known) and number not in found[at]:
                    found[at].append(number)

        tvm_ffi.structural_walk(value, (tvm.ir.Var, look))
    return [max(axes) if axes else None for axes in found]
