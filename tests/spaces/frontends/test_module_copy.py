"""Modules in files: what is read is what was written, and the weights are not in the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.frontends.module_copy import load_module, save_module
from spaces.ir.element_types import numpy_dtype
from tuner.errors import TunerError

pytestmark = pytest.mark.tvm


def graph(*constants: Any, name: str = "x") -> Any:
    """A graph that gives its input, and some constants."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var(name, relax.TensorType((2, 2), "float32"))
    with builder.function("main", [x], attrs={"num_input": 1}):
        with builder.dataflow():
            out = builder.emit_output(relax.Tuple([x, *constants]))
        builder.emit_func_output(out)
    return builder.get()


def assert_kept(module: Any, path: Path) -> None:
    from tvm.ir import assert_structural_equal

    save_module(module, path)
    again = load_module(path)
    assert_structural_equal(again, module)
    assert [str(p.name) for p in again["main"].params] == [
        str(p.name) for p in module["main"].params
    ]


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float64", "int8", "uint8", "int64", "bool"]
)
def test_weights_of_every_type_are_kept(dtype: str, tmp_path: Path) -> None:
    from tvm import relax

    values = np.random.default_rng(0).integers(0, 2, (64, 65)).astype(numpy_dtype(dtype))
    assert_kept(graph(relax.const(values, dtype)), tmp_path / "module.json")
    assert (tmp_path / "module.json").stat().st_size < values.nbytes + 4000
    assert (tmp_path / "module.params").stat().st_size >= values.nbytes


def test_one_that_is_used_twice_is_written_once_and_small_ones_stay(tmp_path: Path) -> None:
    from tvm import relax

    large = relax.const(np.ones((512, 512), "float32"))
    small = relax.const(np.array([1, 2], "int64"))
    assert_kept(graph(large, small, large), tmp_path / "module.json")
    assert (tmp_path / "module.params").stat().st_size < 1.5 * 512 * 512 * 4


def test_an_input_may_be_called_like_a_weight(tmp_path: Path) -> None:
    from tvm import relax

    large = relax.const(np.ones((64, 64), "float32"))
    assert_kept(graph(large, name="weight_0"), tmp_path / "module.json")


def test_a_module_without_weights_leaves_none_of_another_behind(tmp_path: Path) -> None:
    from tvm import relax

    path = tmp_path / "module.json"
    save_module(graph(relax.const(np.ones((64, 64), "float32"))), path)
    assert_kept(graph(), path)
    assert not path.with_suffix(".params").exists()


@pytest.mark.parametrize("name", ["module.json", "module.params"])
@pytest.mark.parametrize("damage", [b"", b"\x80\x04nonsense"])
def test_what_is_damaged_is_said_in_one_line(name: str, damage: bytes, tmp_path: Path) -> None:
    from tvm import relax

    path = tmp_path / "module.json"
    save_module(graph(relax.const(np.ones((64, 64), "float32"))), path)
    (tmp_path / name).write_bytes(damage)
    with pytest.raises(TunerError, match="not a module that TVM can read") as said:
        load_module(path)
    assert "\n" not in str(said.value)
