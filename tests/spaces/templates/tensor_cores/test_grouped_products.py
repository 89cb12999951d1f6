"""Products of a mixture of experts on tensor cores: what rows look up, and what is estimated."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.design_space.knob_space import KnobSpace
from spaces.lowering.extract_tasks import task_of
from spaces.targets.gpu import gpu_of
from spaces.templates.contraction.match import match_contraction
from spaces.templates.products.product import Product, find_product
from spaces.templates.products.traffic import count_moved
from spaces.templates.registry import templates_of
from tests.spaces.templates.tensor_cores.grouped_products import turned
from tests.spaces.templates.tensor_cores.products import AMPERE, HOPPER, Sizes
from tuner.candidate import of_knobs

pytestmark = pytest.mark.tvm

SIZES = Sizes(70, 40, 72, 5)
NONE = SIZES.batch
"""A group that there is none of."""
GROUPS = {
    "some have no rows": np.repeat([0, 2, 4], [3, 60, 7]),
    "one has all rows": np.repeat([3], [70]),
    "the first has none": np.repeat([1, 2, 3, 4], [17, 16, 16, 21]),
    "in any order": np.random.default_rng(0).integers(0, 5, 70),
    "falling": np.repeat([4, 3, 1], [20, 30, 20]),
    "rows beyond": np.repeat([0, 1, NONE], [20, 30, 20]),
    "nothing but such": np.repeat([NONE], [70]),
}


@cache
def kernel_for(target: str) -> Any:
    """The best predicted kernel of a product."""
    task = task_of(turned(SIZES), target, name="product")
    space = KnobSpace(task, templates_of(task)[0])
    written = space.write(of_knobs(space.ranked[0], space.name)).mod
    return load_kernel(build_artifact(written, target))


@pytest.mark.each_value
@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=["ampere", "hopper"])
def test_each_row_is_multiplied_by_what_it_looks_up(target: str, groups: Any) -> None:
    import tvm

    rng = np.random.default_rng(1)
    x = rng.normal(size=(SIZES.m, SIZES.k)).astype(ml_dtypes.bfloat16)
    w = rng.normal(size=(SIZES.batch, SIZES.n, SIZES.k)).astype(ml_dtypes.bfloat16)
    out = np.full((SIZES.m, SIZES.n), np.nan, ml_dtypes.bfloat16)
    tensors = [tvm.runtime.tensor(a) for a in (x, w, groups.astype(np.int32), out)]
    kernel = kernel_for(target)
    kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
    found = tensors[-1].numpy().astype(np.float32)
    wide = w.astype(np.float32)
    wanted = np.zeros((SIZES.m, SIZES.n), np.float32)
    for row, group in enumerate(groups):
        if group != NONE:
            wanted[row] = wide[group] @ x[row].astype(np.float32)
    assert np.abs(found - wanted).max() < 0.2
    assert not found[groups == NONE].any()


def product_of(sizes: Sizes) -> Product:
    task = task_of(turned(sizes), AMPERE, name="product")
    match = match_contraction(task)
    assert match is not None
    found = find_product(match)
    assert found is not None
    return found


def moved(product: Product, tiles: int, swap: int) -> float:
    """Bytes that are moved in tiles of 128 by 128, of so many rows."""
    across = -(-product.extent(product.c.columns_of) // 128)
    both = (across, tiles) if swap else (tiles, across)
    return float(count_moved(product, gpu_of(AMPERE), both, (128, 128), 8, swap))


@pytest.mark.parametrize("swap", [0, 1])
def test_matrices_of_groups_are_read_for_each_of_their_tiles(swap: int) -> None:
    one, many = (product_of(Sizes(16384, 4096, 4096, groups)) for groups in (1, 64))
    weights = 4096 * 4096 * 2
    rows = 16384 * 4096 * 2
    assert moved(many, 128 + 63, swap) > 64 * weights + 2 * rows
    assert moved(many, 128 + 63, swap) > moved(one, 128, swap)


def test_a_row_reads_one_matrix_of_all_that_there_are() -> None:
    few = product_of(Sizes(3, 4096, 4096, 64))
    assert few.elements(few.c.columns_of) == 3 * 4096 * 4096
    assert few.matrices == 3


def test_what_an_axis_of_no_rows_looks_up_is_no_product() -> None:
    from tvm import te

    x, w = te.placeholder((4, 9, 16), "float16"), te.placeholder((5, 16, 24), "float16")
    chosen, r = te.placeholder((4,), "int32"), te.reduce_axis((0, 16), "r")
    out = te.compute(
        (4, 9, 24),
        lambda b, i, j: te.sum(
            x[b, i, r].astype("float32") * w[chosen[b], r, j].astype("float32"), r
        ),
    )
    task = task_of(te.create_prim_func([x, w, chosen, out]), AMPERE, name="product")
    assert all("product" not in template.name for template in templates_of(task))
