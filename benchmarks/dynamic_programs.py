"""DietCode's matrix products: with symbolic dimensions, or one program for each of some sizes.

    tuner tune benchmarks/dynamic_programs.py:dense --dim T=5,24,43
    tuner tune benchmarks/dynamic_programs.py:dense --arg sizes=5,24,43

The second line is what a tuner of static shapes has to do for the same. Sizes are those of BERT
with 16 sequences of T tokens: a dense layer over 16 T rows, and the two products of attention over
16 times 12 heads.
"""

from __future__ import annotations

from typing import Any

from tvm import te
from tvm.ir import IRModule
from tvm.tirx import PrimFunc, const

from tuner import ShapeVar

HEADS, HIDDEN, DEPTH, WIDTH = 192, 64, 768, 2304


def dense(T: ShapeVar | None = None, sizes: str = "") -> PrimFunc | IRModule:
    """(16 T) x 768 x 2304."""
    return _made("dense", T, sizes)


def scores(T: ShapeVar | None = None, sizes: str = "") -> PrimFunc | IRModule:
    """192 times T x 64 x T, the second operand transposed: rows and columns are symbolic."""
    return _made("scores", T, sizes)


def mixed(T: ShapeVar | None = None, sizes: str = "") -> PrimFunc | IRModule:
    """192 times T x T x 64: rows are symbolic, and what is summed over."""
    return _made("mixed", T, sizes)


def tensors(kind: str, size: Any) -> tuple[Any, Any, Any]:
    """The operands and the product, for a number or a symbolic dimension."""
    if kind == "dense":
        return _product((16 * size, _int(DEPTH)), (_int(DEPTH), _int(WIDTH)))
    if kind == "scores":
        shape = (_int(HEADS), size, _int(HIDDEN))
        return _product(shape, shape, transposed=True)
    heads = _int(HEADS)
    return _product((heads, size, size), (heads, size, _int(HIDDEN)))


def open_program(kind: str) -> PrimFunc:
    """The program with T open."""
    return _made(kind, ShapeVar("T"), "")


def _made(kind: str, open_size: ShapeVar | None, sizes: str) -> PrimFunc | IRModule:
    if open_size is not None:
        function = te.create_prim_func(list(tensors(kind, open_size.var)))
        return function.with_attr("global_symbol", kind)
    functions = {}
    for size in map(int, sizes.split(",")):
        name = f"{kind}_{size}"
        function = te.create_prim_func(list(tensors(kind, _int(size))))
        functions[name] = function.with_attr("global_symbol", name)
    return IRModule(functions)


def _product(a_shape: Any, b_shape: Any, *, transposed: bool = False) -> tuple[Any, Any, Any]:
    a, b = te.placeholder(a_shape, name="a"), te.placeholder(b_shape, name="b")
    step = te.reduce_axis((_int(0), a_shape[-1]), "k")
    columns = b_shape[-2] if transposed else b_shape[-1]

    def element(*index: Any) -> Any:
        *outer, i, j = index
        right = b(*outer, j, step) if transposed else b(*outer, step, j)
        return te.sum(a(*outer, i, step) * right, step)

    return a, b, te.compute((*a_shape[:-1], columns), element, "c")


def _int(value: int) -> Any:
    return const(value, "int64")
