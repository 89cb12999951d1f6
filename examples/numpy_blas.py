"""A library as a contestant: the BLAS that numpy brings, for products of two matrices.

tuner tune examples/gemm.py:gemm --library examples/numpy_blas.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from spaces.libraries.einsum import einsum_of

_FORMS = {
    "ac,cb->ab": ("nn", lambda a, b, out: np.matmul(a, b, out=out)),
    "ac,bc->ab": ("nt", lambda a, b, out: np.matmul(a, b.T, out=out)),
    "ca,cb->ab": ("tn", lambda a, b, out: np.matmul(a.T, b, out=out)),
}


class NumpyBlas:
    """Matrix products by `numpy.matmul`."""

    def symbol(self, program: Any) -> str | None:
        """The name of the function that computes a program; None where there is none."""
        product = einsum_of(program)
        if product is None or product.equation not in _FORMS:
            return None
        in_order = (*product.operands, product.result) == (0, 1, 2)
        alike = set(product.dtypes) in ({"float32"}, {"float64"})
        return f"numpy_blas.{_FORMS[product.equation][0]}" if in_order and alike else None

    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The functions, which write the last of the arrays that they are given."""
        return {f"numpy_blas.{name}": product for name, product in _FORMS.values()}


LIBRARIES = NumpyBlas
