"""`Pad` of every mode, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import by_reference, compare, parsed, refusal

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)


def pad(dims: str, pads: list[int], mode: str, dtype: str = "float", **weights: Any) -> Any:
    text = f"""
    <ir_version: 8, opset_import: ["": 19]>
    small ({dtype}[{dims}] x) => ({dtype}[a, b, c] y) {{ y = Pad <mode = "{mode}"> (x, pads) }}
    """
    return parsed(text, pads=np.array(pads), **weights)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pads_and_cuts(mode: str) -> None:
    x = RNG.standard_normal((2, 5, 4)).astype("float32")
    compare(pad("2, 5, 4", [0, 2, 1, 1, 0, 2], mode), {"x": x})
    compare(pad("2, 5, 4", [0, -1, 1, 0, 2, -1], mode), {"x": x})
    compare(pad("2, 5, 4", [0, 2, 1, 1, 0, 2], mode, "int32"), {"x": (9 * x).astype("int32")})


def test_reflects_more_than_there_is() -> None:
    """As NumPy has it; onnxruntime refuses this."""
    x = {"x": RNG.standard_normal((2, 3, 1)).astype("float32")}
    compare(pad("2, 3, 1", [0, 4, 2, 0, 5, 1], "reflect"), x, peer=by_reference)


def test_open_sizes_reflect_what_they_have() -> None:
    x = [{"x": RNG.standard_normal((2, n, 4)).astype("float32")} for n in (3, 8)]
    compare(pad("2, N, 4", [0, 0, 1, 0, 0, 2], "reflect"), *x)
    assert "with N=1" in refusal(pad("2, N, 4", [0, 1, 0, 0, 0, 0], "reflect"))
