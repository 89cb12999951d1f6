"""A program that a library computes in less steps than any schedule: sums of all beginnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def cumsum(rows: int = 8, columns: int = 1024, name: str = "cumsum") -> Any:
    """y[i, j] = x[i, 0] + ... + x[i, j], as a sum over all columns."""
    from tvm import te, tirx

    x = te.placeholder((rows, columns), name="x")
    r = te.reduce_axis((0, columns), name="r")
    kept = lambda i, j: tirx.if_then_else(r <= j, x[i, r], np.float32(0))  # noqa: E731
    y = te.compute((rows, columns), lambda i, j: te.sum(kept(i, j), axis=r), name="sums")
    return te.create_prim_func([x, y]).with_attr("global_symbol", name)


class Sums:
    """numpy's cumulative sum."""

    def symbol(self, program: Any) -> str | None:
        """The name of the function, for programs with the block of `cumsum`."""
        return "sums.cumsum" if 'sblock("sums")' in str(program) else None

    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The one function."""
        return {"sums.cumsum": lambda x, y: np.cumsum(x, axis=1, out=y)}


class Wrong(Sums):
    """Says that it computes the sums, and does not."""

    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The one function."""
        return {"sums.cumsum": lambda x, y: np.copyto(y, x)}


class Greedy(Sums):
    """Changes its input."""

    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The one function."""

        def summed(x: Any, y: Any) -> None:
            np.cumsum(x, axis=1, out=y)
            x[:] = 0

        return {"sums.cumsum": summed}


class Raises(Sums):
    """Fails when it is called."""

    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The one function."""

        def summed(x: Any, y: Any) -> None:
            raise ValueError("out of sums")

        return {"sums.cumsum": summed}


LIBRARIES = Sums
