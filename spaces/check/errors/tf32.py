"""Errors of products of float32 that are multiplied in TF32, for targets that allow it.

TF32 holds 11 bits of a factor, and 8 of its exponent (PTX ISA, "Alternate floating point data
formats"). Kernels of warps round to the nearest, by `cvt.rna`: a factor is off by 2**-11 of itself.
Tensor maps round it on its way to warpgroups, too. What threads copy for these nothing rounds, and
`wgmma.mma_async` cuts off the lower 13 bits (PTX ISA, "wgmma.mma_async", of `.tf32`; an H100's
`mma.sync` did so, too: `benchmarks/results/gpu/instructions.json`, "ask.tf32.low-bits"). That is
less than 2**-10 of a factor, always towards zero, and less than 2**-9 of a product of two, which is
exact. One bound is for all ways.

Tensor cores cut what they add: an instruction sums eight products and the sum before them. Each of
these nine is cut at 2**-25 of the largest, and the result to 24 bits, see
`spaces.templates.tensor_cores.elements.single_fragments`: 1 eps of the sum and 2.25 eps of the
largest, for eight terms. No partial sum and no term is larger than the sum of the terms' sizes. So
a sum of K terms is off by

    2**-9 + K / 8 * 3.25 eps

of the sum of their sizes, in the worst case, besides what any order of its terms may lose.
"""

from __future__ import annotations

import math
from typing import Any

from spaces.check.errors.expressions import dtype_of, kind_of
from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import eps_of

_REAL = "float32"
_LOST = 2.0**-9
_ADDED = 3.25 / 8 * eps_of(_REAL)
_SPREAD = 4.0
"""Bounds of a term that an output is allowed, relative to itself and to the mean of outputs. What
factors lose to the nearest is independent, in a root mean square half of the bound at most; what is
cut off is so too, but for its mean, of which an output loses as large a share of itself."""


def find_roughness(term: Any, terms: int) -> float:
    """The error of a term of a sum in float32, relative to its size; 0 where it is no product of
    two tensors of float32, as those are that kernels multiply in TF32.

    Args:
        terms: of the sum.
    """
    product = rewrite.uncast(term)
    if kind_of(product) != "Mul" or dtype_of(product) != _REAL:
        return 0.0
    factors = [rewrite.uncast(factor) for factor in (product.a, product.b)]
    if any(kind_of(f) != "TensorLoad" or dtype_of(f) != _REAL for f in factors):
        return 0.0
    if factors[0].source.same_as(factors[1].source):
        return 0.0
    return _LOST + terms * _ADDED


def largest_roughness(function: Any, terms: int) -> float:
    """The largest error, relative to its results, that a PrimFunc is allowed whose errors are not
    followed; 0 where no block sums such products.

    Args:
        terms: of all its sums.
    """
    products = (rewrite.find_product(block.body) for block in tvm_compat.sblocks(function))
    found = max((find_roughness(p, 0) for p in products if p is not None), default=0.0)
    return _SPREAD * (found + math.sqrt(terms) * _ADDED) if found else 0.0
