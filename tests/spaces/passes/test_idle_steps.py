"""Steps of a sum that only multiply padding are left out, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.passes.idle_steps import without_idle_steps

pytestmark = pytest.mark.tvm

CHANNELS, KERNEL = 64, 3


def tiled_convolution(
    size: int,
    *,
    padding: int = 1,
    dilation: int = 1,
    stride: int = 1,
    rows: int = 1,
    beyond: float = 0.0,
) -> Any:
    """Of an image, channels last, in tiles of some positions along x and of all channels.

    Args:
        beyond: what it is padded with.
    """
    from tvm import te, topi
    from tvm.s_tir import Schedule

    x = te.placeholder((1, size, size, CHANNELS), name="x")
    w = te.placeholder((KERNEL, KERNEL, CHANNELS, CHANNELS), name="w")
    widths = [0, padding, padding, 0]
    image = topi.nn.pad(x, widths, widths, beyond) if padding else x
    made = topi.nn.conv2d_nhwc(image, w, stride, 0, dilation)
    schedule = Schedule(te.create_prim_func([x, w, made], index_dtype_override="int64"))
    schedule.compute_inline(schedule.get_sblock("pad_temp"))  # a mere copy
    main = schedule.get_sblock("conv2d_nhwc")
    kept = schedule.cache_write(main, 0, "local")
    _, y, x_, f, ry, rx, rc = schedule.get_loops(main)
    tile, row = schedule.split(x_, [None, rows])
    schedule.reorder(y, tile, ry, rx, rc, row, f)
    schedule.unroll(row)
    schedule.vectorize(f)
    schedule.reverse_compute_at(kept, tile)
    schedule.decompose_reduction(main, ry)
    return schedule.mod["main"]


def comparisons(function: Any) -> list[str]:
    """The loops right around whose bodies there is a comparison."""
    import tvm
    import tvm_ffi

    found: list[str] = []

    def look(loop: Any) -> None:
        if isinstance(loop.body, tvm.tirx.IfThenElse):
            found.append(str(loop.loop_var.name))

    tvm_ffi.structural_walk(function.body, (tvm.tirx.For, look))
    return sorted(found)


def ran(function: Any, x: Any, w: Any, size: int) -> Any:
    import tvm

    from spaces.targets.target import parse_target, resolve_target

    out = tvm.runtime.tensor(np.full((1, size, size, CHANNELS), np.nan, "float32"))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    library = tvm.compile(module, target=parse_target(resolve_target("llvm", cores=1)))
    library["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    return out.numpy()


def drawn(size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(size)
    x = rng.standard_normal((1, size, size, CHANNELS)).astype("float32")
    return x, rng.standard_normal((KERNEL, KERNEL, CHANNELS, CHANNELS)).astype("float32")


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (3, {}),
        (7, {"rows": 7}),
        (8, {"rows": 4}),
        (9, {"padding": 4, "dilation": 4, "rows": 3}),
        (9, {"padding": 2, "stride": 2, "rows": 5}),
        (5, {"padding": 6, "dilation": 6, "rows": 5}),
    ],
)
def test_results_are_the_same(size: int, said: dict[str, int]) -> None:
    whole = tiled_convolution(size, **said)
    outputs = (size + 2 * said.get("padding", 1) - 2 * said.get("dilation", 1) - 1) // said.get(
        "stride", 1
    ) + 1
    changed = without_idle_steps(whole)
    assert comparisons(changed)
    x, w = drawn(size)
    wanted = ran(whole, x, w, outputs)
    np.testing.assert_allclose(ran(changed, x, w, outputs), wanted, rtol=1e-5, atol=1e-5)


def test_weights_that_no_tile_needs_are_not_touched() -> None:
    """All but those in the middle, where they are further apart than the map is wide."""
    x, w = drawn(5)
    w[[0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 0, 2, 0, 1, 2]] = np.inf
    whole = tiled_convolution(5, padding=5, dilation=5)
    assert np.isnan(ran(whole, x, w, 5)).any()
    found = ran(without_idle_steps(whole), x, w, 5)
    np.testing.assert_allclose(found, x @ w[1, 1], rtol=1e-4, atol=1e-4)


def test_a_row_is_compared_where_a_tile_has_all_of_it() -> None:
    """Each of its tiles multiplies something by each weight of a row."""
    assert comparisons(without_idle_steps(tiled_convolution(7, rows=7))) == ["ry"]
    assert comparisons(without_idle_steps(tiled_convolution(7))) == ["rx", "ry"]


@pytest.mark.parametrize(
    ("size", "said"),
    [(7, {"padding": 0}), (96, {"rows": 4})],
    ids=["no padding", "too little of it"],
)
def test_a_program_with_nothing_to_leave_out_stays(size: int, said: dict[str, int]) -> None:
    whole = tiled_convolution(size, **said)
    assert without_idle_steps(whole).same_as(whole)


def test_padding_with_something_else_is_multiplied() -> None:
    """As the zero point of what is quantized."""
    whole = tiled_convolution(7, beyond=1.0)
    assert without_idle_steps(whole).same_as(whole)
