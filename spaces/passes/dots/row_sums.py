"""The correction of sums of products of bytes that are signed alike.

The instruction multiplies an unsigned byte by a signed one. Of two signed alike the top bit of one
is flipped, which makes of it the other kind, greater or less by 128: a sum is then off by
128 times the sum of the other factor. The latter is the same for a whole row of a tile, so that it
is added up once a tile, apart from the products. Results are those of the plain program, bit for
bit: both are arithmetic modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.dots.instructions import WORD, add_elements, broadcast
from spaces.passes.dots.steps import Step, read_words

_NARROWEST = 4
"""Words of the narrowest vector that the instruction takes."""


def correct(step: Step) -> Any:
    """The statement that subtracts from a tile's sums what turning one factor has added."""
    from tvm import s_tir, tirx

    fresh = [(loop, tirx.Var(str(loop.loop_var.name), loop.loop_var.ty)) for loop in step.around]

    rows, vectors, terms = _sort_loops(step)
    run, left = _find_run(step, terms)
    kept = [*rows, *vectors, *left]

    def rename(expression: Any) -> Any:
        """An expression in the variables of the correction, at the first group of a run."""
        values = [
            (loop.loop_var, var if rewrite.is_among(loop, kept) else rewrite.constant(0, var))
            for loop, var in fresh
        ]
        return rewrite.substitute(expression, values)

    def nest(loops: Sequence[Any], body: Any) -> Any:
        for loop in reversed(loops):
            var = next(var for known, var in fresh if known.same_as(loop))
            body = rewrite.copy_loop(loop, body, var=var, marks={})
        return body

    total = _Total(step, run, rename)
    store = _subtract(step, total.read(), rename)
    inside = tirx.SeqStmt([*total.begin(), nest(left, total.add()), nest(vectors, store)])
    made = s_tir.SBlock([], [], [], "row_sums", inside, None, total.buffers)
    return nest(rows, s_tir.SBlockRealize([], rename(step.realize.predicate), made))


def _sort_loops(step: Step) -> tuple[list[Any], list[Any], list[Any]]:
    """The loops around a step: over rows, over vectors of a row, and over the terms of a sum."""

    def moves(load: Any, loop: Any) -> bool:
        return any(rewrite.uses(index, [loop.loop_var]) for index in load.indices)

    spatial = [loop for loop in step.around if moves(step.sums, loop)]
    rows = [loop for loop in spatial if moves(step.shared, loop)]
    vectors = [loop for loop in spatial if not rewrite.is_among(loop, rows)]
    return rows, vectors, [loop for loop in step.around if not rewrite.is_among(loop, spatial)]


def _find_run(step: Step, terms: Sequence[Any]) -> tuple[int, list[Any]]:
    """The groups of terms of a row that follow one another in memory, and the loops over the rest.

    Args:
        terms: the loops over the groups of a sum.
    """
    *slow, last = step.first(step.shared)

    def grow(loop: Any) -> int | None:
        """What a step of a loop adds to the last index, if it changes no other."""
        apart = any(rewrite.uses(index, [loop.loop_var]) for index in slow)
        return None if apart else rewrite.growth(step.analyzer, last, loop.loop_var)

    groups, left = 1, [(loop, grow(loop)) for loop in terms]
    while near := [pair for pair in left if pair[1] == groups * step.dot.terms]:
        loop = near[0][0]
        if (extent := tvm_compat.as_int(loop.extent)) is None:
            break
        groups *= extent
        left = [pair for pair in left if not pair[0].same_as(loop)]
    return groups, [loop for loop, _ in left]


class _Total:
    """The sum of a row of the shared factor, in vectors.

    Args:
        groups: that follow one another in memory, in each step of the loops around.
        rename: puts the variables of the correction into an expression.
    """

    def __init__(self, step: Step, groups: int, rename: Callable[[Any], Any]) -> None:
        from tvm import tirx

        self._step = step
        self._place = [rename(index) for index in step.first(step.shared)]
        self._kind = str(step.shared.source.dtype)
        self._parts: list[tuple[int, int, Any]] = []  # words of a vector, how many, their sums
        for words in sorted({step.lanes, _NARROWEST, 1}, reverse=True):
            count, groups = divmod(groups, words)
            if count:
                lanes = max(words, _NARROWEST)
                sums = tirx.decl_buffer((lanes,), WORD, f"total_{words}", scope="local")
                self._parts.append((words, count, sums))

    @property
    def buffers(self) -> list[Any]:
        """What is allocated."""
        return [sums for _, _, sums in self._parts]

    def begin(self) -> list[Any]:
        """Set all to zero."""
        return [self._store(sums, broadcast(0, int(sums.shape[0]))) for sums in self.buffers]

    def add(self) -> Any:
        """Add what follows one another in memory."""
        from tvm import tirx

        statements, done = [], 0
        for words, count, sums in self._parts:
            if count == 1:
                statements.append(self._add(sums, words, self._at(done)))
            else:
                turn = tirx.Var("turn", self._place[-1].ty)
                start = self._at(done) + turn * rewrite.constant(words * self._step.dot.terms, turn)
                zero, extent = (rewrite.constant(n, turn) for n in (0, count))
                body = self._add(sums, words, start)
                statements.append(tirx.For(turn, zero, extent, tirx.ForKind.SERIAL, body))
            done += count * words
        return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]

    def read(self) -> Any:
        """The sum."""
        from tvm import tirx

        total: Any = tirx.const(0, WORD)
        for words, _, sums in self._parts:
            vector = self._load(sums)
            if words == 1:  # the same in all lanes: one is as good as any other
                total = total + tirx.Shuffle([vector], [tirx.const(0, WORD)])
            else:
                name = f"llvm.vector.reduce.add.v{words}i32"
                total = total + tirx.call_llvm_pure_intrin(WORD, name, vector)
        return total

    def _at(self, groups: int) -> Any:
        """The last index of a group, that many after the first."""
        last = self._place[-1]
        return last + rewrite.constant(groups * self._step.dot.terms, last)

    def _add(self, sums: Any, words: int, last: Any) -> Any:
        place = [*self._place[:-1], last]
        read = read_words(self._step.shared.source, place, words, self._step.dot.terms)
        vector = broadcast(read, int(sums.shape[0])) if words == 1 else read
        return self._store(sums, add_elements(self._load(sums), vector, self._kind))

    def _load(self, sums: Any) -> Any:
        return sums[self._all(sums)]

    def _store(self, sums: Any, value: Any) -> Any:
        from tvm import tirx

        return tirx.BufferStore(sums, value, [self._all(sums)])

    def _all(self, sums: Any) -> Any:
        from tvm import tirx

        zero, one = (rewrite.constant(n, sums.shape[0]) for n in (0, 1))
        return tirx.Ramp(zero, one, int(sums.shape[0]))


def _subtract(step: Step, total: Any, rename: Callable[[Any], Any]) -> Any:
    """Subtract the excess from a vector of sums."""
    from tvm import s_tir, tirx

    sums = step.sums.source
    place = [rename(index) for index in step.place_sums()]
    excess = broadcast(total * tirx.const(step.dot.excess, WORD), step.lanes)
    store = tirx.BufferStore(sums, sums[tuple(place)] - excess, place)
    region = rename(step.region(step.sums))
    made = s_tir.SBlock([], [region], [region], "corrected", store)
    return s_tir.SBlockRealize([], True, made)
