"""What kernels that multiply float32 in TF32 may be off by, and what they may not.

Kernels are NumPy's here, which round factors to the 11 bits of TF32, or cut them to these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from spaces.check.choice import reference_of
from spaces.check.error_bounds import with_bounds
from spaces.check.errors.tf32 import find_roughness
from spaces.check.reference import reference
from spaces.ir import rewrite, tvm_compat
from tuner.request.target_text import EXACT, Arithmetic

pytestmark = pytest.mark.tvm
Array = npt.NDArray[Any]
M, N, TF32 = 24, 40, Arithmetic(tf32=True)


def matmul(terms: int, kind: str = "float32") -> Any:
    import tvm
    from tvm import te, topi

    a = te.placeholder((M, terms), kind, name="a")
    b = te.placeholder((terms, N), kind, name="b")
    return tvm.IRModule({"main": te.create_prim_func([a, b, topi.nn.matmul(a, b)])})


def squares(terms: int) -> Any:
    """Sums of one tensor's squares, which no kernel multiplies in TF32."""
    import tvm
    from tvm import te

    a, r = te.placeholder((M, terms), name="a"), te.reduce_axis((0, terms), "r")
    total = te.compute((M,), lambda i: te.sum(a[i, r] * a[i, r], r), "total")
    return tvm.IRModule({"main": te.create_prim_func([a, total])})


def cases(made: Any, arithmetic: Arithmetic = TF32) -> Any:
    return reference(made, "tf32", arithmetic=arithmetic).cases


def to_bits(x: Array, bits: int) -> Array:
    """Numbers with so many bits, to the nearest, ties away from zero."""
    left = 24 - bits
    whole = x.view(np.uint32) + np.uint32(1 << (left - 1))
    return (whole & ~np.uint32((1 << left) - 1)).view(np.float32)


def multiply(case: Any, change: Callable[[Array], Array]) -> Array:
    a, b = (change(case.fresh(i)).astype(np.float64) for i in range(2))
    found: Array = (a @ b).astype(np.float32)
    return found


def as_tf32(x: Array) -> Array:
    return to_bits(x, 11)


def cut_to_tf32(x: Array) -> Array:
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def as_bfloat16(x: Array) -> Array:
    return to_bits(x, 8)


@pytest.mark.parametrize("change", [as_tf32, cut_to_tf32])
@pytest.mark.parametrize("terms", [1, 16, 77, 1000])
def test_factors_may_be_rounded_to_tf32_and_without_the_flag_they_may_not(
    terms: int, change: Callable[[Array], Array]
) -> None:
    made = matmul(terms)
    for allowed, exact in zip(cases(made), cases(made, EXACT), strict=True):
        got = multiply(allowed, change)
        assert allowed.wrong(2, got) is None
        assert exact.wrong(2, got) is not None


@pytest.mark.parametrize("terms", [1, 8])
def test_the_worst_of_roundings_is_within_the_bound_and_little_more_is(terms: int) -> None:
    """All terms are of one size and sign, and lose the same: all bits that are cut off are set."""
    blocks = tvm_compat.sblocks(matmul(terms)["main"])
    (product,) = (p for block in blocks if (p := rewrite.find_product(block.body)) is not None)
    factor = np.nextafter(np.float32(1 + 2.0**-10), np.float32(0))
    assert cut_to_tf32(factor) == 1
    exact = terms * np.float64(factor) ** 2
    bound = find_roughness(product, terms) * exact
    assert exact - terms <= bound < 1.01 * (exact - terms)


@pytest.mark.parametrize("terms", [1, 8])
def test_factors_of_fewer_bits_are_found_where_terms_are_few(terms: int) -> None:
    for case in cases(matmul(terms)):
        assert case.wrong(2, multiply(case, as_bfloat16)) is not None


def test_some_elements_have_the_bounds_that_all_have() -> None:
    made = matmul(77)
    some = reference_of(made, "tf32", quick_steps=0, arithmetic=TF32)
    for sampled, whole in zip(some.cases, cases(made), strict=True):
        sample = sampled._samples[2]
        assert sample.bound == pytest.approx(whole.bounds[2][sample.where], rel=0.3, abs=1e-6)


@pytest.mark.parametrize("terms", [16, 77])
def test_faults_are_found_within_wider_bounds(terms: int) -> None:
    """A row that is another's, and a term that is left out."""
    for case in cases(matmul(terms)):
        a, b = (case.fresh(i).astype(np.float64) for i in range(2))
        right = (a @ b).astype(np.float32)
        less = (a[:, :-1] @ b[:-1]).astype(np.float32)
        for wrong in (right[[1, 0, *range(2, M)]], less):
            assert case.wrong(2, wrong) is not None


@pytest.mark.parametrize("made", [matmul(77, "float16"), squares(77)], ids=["halves", "squares"])
def test_other_sums_are_allowed_no_more(made: Any) -> None:
    written = [len(made["main"].params) - 1]
    found = {
        tvm_compat.structural_hash_hex(with_bounds(made["main"], written, arithmetic=how).function)
        for how in (EXACT, TF32)
    }
    assert len(found) == 1
    for one, other in zip(cases(made), cases(made, EXACT), strict=True):
        np.testing.assert_array_equal(one.bounds[written[0]], other.bounds[written[0]])
