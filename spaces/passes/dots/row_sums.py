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

    def rename(expression: Any, kept: Sequence[Any]) -> Any:
        """An expression in the variables of the correction, in the first step of loops not kept."""
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

    together = rows if run == 1 and _follow(step, rows) else []
    apart = [loop for loop in rows if not rewrite.is_among(loop, together)]
    place = [rename(index, [*apart, *left]) for index in step.first(step.shared_factor)]
    total: _Row | _Rows = _Row(step, place, run)
    if together:
        number = next(var for loop, var in fresh if loop.same_as(together[0]))
        total = _Rows(step, place, number, tvm_compat.as_int(together[0].extent) or 0)
    store = _subtract(step, total.read(), lambda e: rename(e, [*rows, *vectors]))
    body = [*total.begin(), nest(left, total.add()), nest([*together, *vectors], store)]
    made = s_tir.SBlock([], [], [], "row_sums", tirx.SeqStmt(body), None, total.buffers)
    predicate = rename(step.realize.predicate, rows)
    return nest(apart, s_tir.SBlockRealize([], predicate, made))


def _follow(step: Step, rows: Sequence[Any]) -> bool:
    """Whether the groups of all rows follow one another in memory, and there are as many rows in
    every tile."""
    if len(rows) != 1 or tvm_compat.as_int(rows[0].extent) is None:
        return False
    *slow, last = step.first(step.shared_factor)
    variables = [rows[0].loop_var]
    if any(rewrite.uses(e, variables) for e in (*slow, step.realize.predicate)):
        return False
    return rewrite.growth(step.analyzer, last, variables[0]) == step.dot.terms


def _sort_loops(step: Step) -> tuple[list[Any], list[Any], list[Any]]:
    """The loops around a step: over rows, over vectors of a row, and over the terms of a sum."""

    def moves(load: Any, loop: Any) -> bool:
        return any(rewrite.uses(index, [loop.loop_var]) for index in load.indices)

    spatial = [loop for loop in step.around if moves(step.sums, loop)]
    rows = [loop for loop in spatial if moves(step.shared_factor, loop)]
    vectors = [loop for loop in spatial if not rewrite.is_among(loop, rows)]
    return rows, vectors, [loop for loop in step.around if not rewrite.is_among(loop, spatial)]


def _find_run(step: Step, terms: Sequence[Any]) -> tuple[int, list[Any]]:
    """The groups of terms of a row that follow one another in memory, and the loops over the rest.

    Args:
        terms: the loops over the groups of a sum.
    """
    *slow, last = step.first(step.shared_factor)

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


class _Row:
    """The sum of a row of the shared factor, in vectors.

    Args:
        place: indices of the row's first group in each step of the loops around.
        groups: that follow one another in memory from there on.
    """

    def __init__(self, step: Step, place: list[Any], groups: int) -> None:
        from tvm import tirx

        self._step, self._place = step, place
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
        return [_store(sums, broadcast(0, int(sums.shape[0]))) for sums in self.buffers]

    def add(self) -> Any:
        """Add what follows one another in memory."""
        from tvm import tirx

        statements, done = [], 0
        for words, count, sums in self._parts:
            if count == 1:
                statements.append(self._add(sums, words, _after(self._step, self._place, done)))
            else:
                turn = tirx.Var("turn", self._place[-1].ty)
                start = _after(self._step, self._place, done)
                start[-1] += turn * rewrite.constant(words * self._step.dot.terms, turn)
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
            vector = _load(sums)
            if words == 1:  # the same in all lanes: one is as good as any other
                total = total + tirx.Shuffle([vector], [tirx.const(0, WORD)])
            else:
                name = f"llvm.vector.reduce.add.v{words}i32"
                total = total + tirx.call_llvm_pure_intrin(WORD, name, vector)
        return total

    def _add(self, sums: Any, words: int, place: list[Any]) -> Any:
        return _store(sums, _add_words(self._step, _load(sums), place, words))


class _Rows:
    """The sums of all rows of a tile at once, whose groups follow one another.

    Args:
        place: indices of the first row's group in each step of the loops around.
        number: the variable that numbers rows where a sum is read.
        count: of rows.
    """

    def __init__(self, step: Step, place: list[Any], number: Any, count: int) -> None:
        from tvm import tirx

        self._step, self._place, self._number = step, place, number
        self._totals = tirx.decl_buffer((count,), WORD, "totals", scope="local")
        self._parts: list[tuple[int, int]] = []  # the first row of a vector, and its words
        done = 0
        for words in sorted({step.lanes, 2 * _NARROWEST, _NARROWEST, 1}, reverse=True):
            while words <= min(step.lanes, count - done):
                self._parts.append((done, words))
                done += words

    @property
    def buffers(self) -> list[Any]:
        """What is allocated."""
        return [self._totals]

    def begin(self) -> list[Any]:
        """Set all to zero."""
        from tvm import tirx

        return [
            _store(self._totals, broadcast(0, words) if words > 1 else tirx.const(0, WORD), at)
            for at, words in self._parts
        ]

    def add(self) -> Any:
        """Add a group of each row."""
        from tvm import tirx

        statements = []
        for at, words in self._parts:
            place = _after(self._step, self._place, at)
            sums = _load(self._totals, at, words)
            wide = sums if words > 1 else broadcast(sums, _NARROWEST)
            added = _add_words(self._step, wide, place, words)
            if words == 1:
                added = tirx.Shuffle([added], [tirx.const(0, WORD)])
            statements.append(_store(self._totals, added, at))
        return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]

    def read(self) -> Any:
        """The sum of a row."""
        return self._totals[rewrite.cast(str(self._totals.shape[0].ty.dtype), self._number)]


def _after(step: Step, place: list[Any], groups: int) -> list[Any]:
    """The indices of a group, that many after another in memory."""
    last = place[-1]
    return [*place[:-1], last + rewrite.constant(groups * step.dot.terms, last)]


def _add_words(step: Step, sums: Any, place: list[Any], words: int) -> Any:
    """A vector of sums with groups of the shared factor added; one group goes to all."""
    read = read_words(step.shared_factor.source, place, words, step.dot.terms)
    vector = broadcast(read, int(sums.ty.dtype.lanes)) if words == 1 else read
    return add_elements(sums, vector, str(step.shared_factor.source.dtype))


def _load(sums: Any, at: int = 0, words: int | None = None) -> Any:
    """So many sums; None is all."""
    return sums[_span(sums, at, words or int(sums.shape[0]))]


def _store(sums: Any, value: Any, at: int = 0) -> Any:
    from tvm import tirx

    return tirx.BufferStore(sums, value, [_span(sums, at, int(value.ty.dtype.lanes))])


def _span(sums: Any, at: int, words: int) -> Any:
    from tvm import tirx

    first, one = (rewrite.constant(n, sums.shape[0]) for n in (at, 1))
    return tirx.Ramp(first, one, words) if words > 1 else first


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
