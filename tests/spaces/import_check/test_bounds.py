"""How far an output may be from what the source gives."""

from __future__ import annotations

import numpy as np
import pytest

from spaces.import_check.bounds import coarsest_step, part
from tests.spaces.frontends.onnx.beside_onnxruntime import parsed

WANT = np.linspace(-4, 4, 32, dtype=np.float32)


def test_rounding_is_no_difference_and_a_wrong_element_is() -> None:
    assert not part(WANT * np.float32(1 + 1e-6), WANT, narrow=True)
    wrong = WANT.copy()
    wrong[3] += 0.01
    assert "largest error 0.01" in part(wrong, WANT)


def test_of_one_node_less_is_allowed() -> None:
    near = WANT + np.float32(1e-3)
    assert not part(near, WANT)
    assert part(near, WANT, narrow=True)


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (WANT.reshape(4, 8), "its shape is 4,8, and 32 in the source"),
        (WANT.astype(np.float64), "it holds float64, and float32 in the source"),
        (np.where(WANT > 3, np.nan, WANT), "not the NaN or infinity they should be|not finite"),
        (np.where(WANT > 3, np.inf, WANT), "not the NaN or infinity they should be|not finite"),
    ],
)
def test_what_else_differs(got: np.ndarray, said: str) -> None:
    import re

    got = got.astype(np.float32) if "holds" not in said else got
    assert re.search(said, part(got, WANT))


def test_nan_and_infinity_may_be_wanted() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert not part(odd.copy(), odd)
    assert part(np.nan_to_num(odd), odd)


def test_integers_are_equal_but_those_that_one_node_rounds_to_8_bits() -> None:
    small = np.arange(8, dtype=np.uint8)
    assert part(small + 1, small)
    assert not part((small + 1).astype(np.uint8), small, narrow=True)
    assert part((small + 2).astype(np.uint8), small, narrow=True)
    large = np.arange(8, dtype=np.int64)
    assert part(large + 1, large, narrow=True)
    assert part(~(large > 3), large > 3, narrow=True)


def test_nothing_equals_nothing() -> None:
    assert not part(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))


def test_half_precision_anywhere_in_a_graph_widens_its_bounds() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    small (float[4] x) => (float[4] y) { h = Cast <to = 10> (x) y = Cast <to = 1> (h) }
    """
    step = coarsest_step(parsed(text))
    assert step == 2**-10
    near = WANT + np.float32(4e-3)
    assert part(near, WANT, narrow=True)
    assert not part(near, WANT, narrow=True, step=step)
    assert coarsest_step(parsed(text.replace("10", "11"))) == 0


@pytest.mark.parametrize("bytes_of", ["QuantizeLinear(x, s, z)", "DynamicQuantizeLinear(x)"])
def test_bytes_anywhere_in_a_graph_widen_its_bounds(bytes_of: str) -> None:
    """Two sides round a number that is next to a tie to different bytes."""
    out = "q" if "(x, s" in bytes_of else "q, s, z"
    given = ", float s, uint8 z" if "(x, s" in bytes_of else ""
    text = f"""
    <ir_version: 8, opset_import: ["": 17]>
    small (float[4] x{given}) => (float[4] y) {{
      {out} = {bytes_of} y = DequantizeLinear (q, s, z)
    }}
    """
    step = coarsest_step(parsed(text))
    assert step == 2**-8
    assert not part(WANT * np.float32(1.01), WANT, step=step)
    assert part(WANT * np.float32(1.2), WANT, step=step)
