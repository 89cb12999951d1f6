"""A library that has functions for large products only."""

from __future__ import annotations

from typing import Any

from examples.numpy_blas import NumpyBlas
from spaces.ir.tvm_compat import param_shape


class LargeProducts(NumpyBlas):
    """numpy's BLAS where a side is of 512."""

    def symbol(self, program: Any) -> str | None:
        """See `NumpyBlas`."""
        large = any(512 in (param_shape(param) or ()) for param in program.params)
        return super().symbol(program) if large else None


LIBRARIES = LargeProducts
