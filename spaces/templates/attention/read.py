"""Attention in a tensor program, as `spaces.lowering.attention` writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.guard import Unsuitable
from spaces.lowering.attention.description import Attention, Axis, Load
from spaces.lowering.attention.program import STEPS, write_attention


def read_attention(function: Any) -> Attention:
    """The attention that a PrimFunc computes; its tensors are the parameters.

    What is read is written once more, and must be the same program.

    Raises:
        Unsuitable: it computes something else.
    """
    from tvm_ffi import structural_equal

    blocks = {str(block.name_hint): block for block in tvm_compat.sblocks(function)}
    if blocks.keys() != {*STEPS, "root"}:
        raise Unsuitable("no attention")
    found = _Reader(blocks).read()
    written = write_attention(found, [*function.params])
    if not structural_equal(tvm_compat.with_attrs_of(written, function), function):
        raise Unsuitable("no attention as it is written")
    return found


class _Reader:
    """Reads the blocks, in terms of the axes of the first product and the columns of the result."""

    def __init__(self, blocks: Mapping[str, Any]) -> None:
        self._blocks = blocks
        product, total = (blocks[name].iter_vars for name in ("product", "total"))
        *self._batch, self._rows, self._keys, self._width = map(_read_axis, product)
        self._columns = _read_axis(total[-2])

    def read(self) -> Attention:
        """The whole of it."""
        rows, scored = (*self._batch, self._rows), (*self._batch, self._rows, self._keys)
        found = (*rows, self._columns)
        _, query, key = self._read_product("product", (*scored, self._width))
        product, _ = self._read_store("product", (*scored, self._width))
        total, _ = self._read_store("total", (*found, self._keys))
        _, _, value = self._read_product("total", (*found, self._keys))
        of_product, of_total = (_stand_for(load.tensor) for load in (product, total))
        _, score = self._read_store("score", scored)
        _, weight = self._read_store("weight", scored)
        place, result = self._read_store("result", found)
        return Attention(
            *(tuple(self._batch), self._rows, self._keys, self._width, self._columns),
            *(query, key, value),
            *(of_product, _replace(score, product.tensor, of_product)),
            _is_select(weight),
            *(of_total, _replace(result, total.tensor, of_total)),
            place,
        )

    def _read_store(self, name: str, axes: Sequence[Axis]) -> tuple[Load, Any]:
        """What a block stores to, and the value."""
        block = self._blocks[name]
        by = [(own.var, axis.var) for own, axis in zip(block.iter_vars, axes, strict=True)]
        indices = tuple(rewrite.substitute(index, by) for index in block.body.indices)
        return Load(block.body.buffer, indices), rewrite.substitute(block.body.value, by)

    def _read_product(self, name: str, axes: Sequence[Axis]) -> tuple[Load, Load, Load]:
        """What a block adds to, and the factors that it multiplies."""
        to, value = self._read_store(name, axes)
        first, second = (rewrite.uncast(factor) for factor in (value.b.a, value.b.b))
        return to, _read_load(first), _read_load(second)


def _read_axis(axis: Any) -> Axis:
    return Axis(axis.var, axis.dom.extent)


def _read_load(load: Any) -> Load:
    return Load(load.source, tuple(load.indices))


def _stand_for(tensor: Any) -> Any:
    """A variable for the elements of a tensor."""
    from tvm import tirx

    return tirx.Var("sum", str(tensor.dtype))


def _replace(value: Any, tensor: Any, by: Any) -> Any:
    """An expression with a variable in place of a tensor's elements."""
    from tvm.ir import TensorLoad
    from tvm_ffi import structural_mutate

    def look(load: Any, mutator: Any) -> Any:
        return by if load.source.same_as(tensor) else mutator.default_mutate(load)

    return structural_mutate(value, [(TensorLoad, look)])


def _is_select(weight: Any) -> bool:
    from tvm.tirx import Select

    return isinstance(rewrite.uncast(weight), Select)
