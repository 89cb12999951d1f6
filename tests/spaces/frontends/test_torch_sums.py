"""What PyTorch makes of sums of halves, which it adds up in float32: of 8192 ones a half that adds
up makes 2048, since 2049 is none."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.frontends.model import load_model
from spaces.ir.element_types import numpy_dtype
from spaces.lowering.lower import lower
from tests.needed import needed_package
from tuner.request.model_spec import ModelSpec

torch = needed_package("torch")
nn = torch.nn
pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
MANY = 8192


class Calls(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.forward = function


def image(x: Any) -> Any:
    return x.reshape(2, 1, 64, 128)


def steps(x: Any) -> Any:
    return torch.cumsum(x[:, :64], -1)


def as_here_and_there(function: Callable[[Any], Any], dtype: str, path: Path) -> tuple[Any, Any]:
    """What we and PyTorch make of rows of ones."""
    x = torch.ones((2, MANY), dtype=getattr(torch, dtype))
    with warnings.catch_warnings():  # PyTorch warns of its own code
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(Calls(function), (x,)), path)
    lowered = lower(load_model(ModelSpec(str(path))).module, LLVM)
    ones = np.ones((2, MANY), numpy_dtype(dtype))
    (got,) = run_once(compile_module(lowered, LLVM), [ones])
    assert str(got.dtype) == dtype
    return got.astype("float32"), function(x).float().numpy()


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x.sum(-1), id="sum"),
        pytest.param(lambda x: x.sum(-1, dtype=x.dtype), id="sum of a said type"),
        pytest.param(lambda x: x.sum(), id="sum of all"),
        pytest.param(lambda x: x.mean(-1, keepdim=True), id="mean"),
        pytest.param(lambda x: x.var(-1) + 1, id="variance"),
        pytest.param(lambda x: torch.linalg.vector_norm(x, dim=-1), id="norm"),
        pytest.param(lambda x: torch.softmax(x, -1), id="softmax"),
        pytest.param(lambda x: torch.log_softmax(x, -1), id="log softmax"),
        pytest.param(
            lambda x: nn.functional.layer_norm(steps(x), (64,), x[0, :64], 4 * x[0, :64]),
            id="layer norm",
        ),
        pytest.param(
            lambda x: 4 + nn.functional.group_norm(image(steps(x).repeat(1, 128)), 1),
            id="group norm",
        ),
        pytest.param(lambda x: torch.cumsum(x, -1)[:, -3:], id="running sum"),
        pytest.param(lambda x: nn.functional.avg_pool2d(image(x), (64, 128)), id="pool"),
        pytest.param(lambda x: nn.functional.adaptive_avg_pool2d(image(x), 1), id="adaptive pool"),
    ],
)
def test_halves_are_added_up_in_single(
    function: Callable[[Any], Any], dtype: str, tmp_path: Path
) -> None:
    got, expected = as_here_and_there(function, dtype, tmp_path / "net.pt2")
    np.testing.assert_allclose(got, expected, rtol=1e-3 if dtype == "float16" else 8e-3)


def test_a_sum_of_halves_that_is_to_be_single_is(tmp_path: Path) -> None:
    x = torch.full((1, 3), 1 + 2**-10, dtype=torch.float16)
    path = tmp_path / "net.pt2"
    network = Calls(lambda x: x.sum(-1, dtype=torch.float32))
    torch.export.save(torch.export.export(network, (x,)), path)
    (got,) = run_once(
        compile_module(lower(load_model(ModelSpec(str(path))).module, LLVM), LLVM), [x.numpy()]
    )
    assert got.dtype == np.float32
    assert got[0] == 3 * (1 + 2**-10)
