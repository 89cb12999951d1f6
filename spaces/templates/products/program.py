"""The PrimFunc of a product: the kernel that multiplies, and the one that adds up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from spaces.templates.contraction.match import Match
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.product import Product
from spaces.templates.products.totals import Totals
from spaces.templates.thread_program import DEVICE_ENTRY, begin_program


class Writer(Protocol):
    """Writes the kernel that multiplies; what its host does it writes when it is made."""

    @property
    def totals(self) -> Totals:
        """Where its sums go."""

    def write(self) -> None:
        """Write what the threads do."""


def write_product(match: Match, product: Product, begin: Callable[[Any, Epilogue], Writer]) -> Any:
    """The PrimFunc of a setting.

    Args:
        match: the program, tidied up.
        begin: gives a writer, of TVM's script and what the program does to its sums.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func():
        tensors = begin_program(T, [*match.schedule.mod["main"].params])
        writer = begin(T, Epilogue(match, product.c, tensors))
        writer.totals.allocate()
        with T.attr({DEVICE_ENTRY: True}):
            writer.write()
        writer.totals.write_adding()
    return builder.get()
