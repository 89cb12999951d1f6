"""A library's large constants are used where the system maps them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen import library_weights
from spaces.codegen.executable import compile_module, compile_plainly, export_library, run_once
from spaces.lowering.lower import lower
from tuner.errors import TunerError

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere TVM copies them"),
]

LLVM = '{"kind":"llvm","num-cores":1}'
ROWS, WIDE = 4, 256
"""A weight of WIDE by WIDE floats is large, one of WIDE is not."""


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def lower_products(weights: Sequence[Any], result: Any = None) -> Any:
    """A graph that multiplies its input by one weight after the other.

    Args:
        result: another constant that it returns too.
    """
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((ROWS, WIDE), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for weight in weights:
                constant = relax.const(weight, str(weight.dtype))
                y = builder.emit(relax.op.matmul(y, relax.op.astype(constant, "float32")))
            if result is not None:
                y = relax.Tuple([y, relax.const(result)])
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return lower(builder.get(), LLVM)


def load_exported(path: Path, module: Any) -> Any:
    """The library that users load."""
    import tvm

    export_library(compile_module(module, LLVM), path)
    return tvm.runtime.load_module(str(path))


def outputs(library: Any) -> list[Any]:
    """What a library gives for one input, as TVM's tensors."""
    import tvm

    found = tvm.relax.VirtualMachine(library, tvm.cpu())["main"](
        tvm.runtime.tensor(random(ROWS, WIDE))
    )
    return [found] if hasattr(found, "numpy") else list(found)


def find_file(address: int) -> str:
    """The file of which an address of this process is a page; empty of memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        pages, *_, name = line.split(maxsplit=5) if line.count(" ") > 5 else (line.split()[0], "")
        first, last = (int(end, 16) for end in pages.split("-"))
        if first <= address < last:
            return name.strip()
    raise AssertionError("it is no address")


def test_a_large_weight_is_a_page_of_the_librarys_file(tmp_path: Path) -> None:
    weight = random(WIDE, WIDE)
    library = load_exported(tmp_path / "net.so", lower_products([weight]))
    found = library.get_function("tuner_weight", query_imports=True)(0)
    np.testing.assert_array_equal(found.numpy(), weight)
    assert find_file(found.data_ptr()) == str(tmp_path / "net.so")
    assert found.data_ptr() % 64 == 0


def test_weights_of_each_type_are_what_they_were(tmp_path: Path) -> None:
    types = ("float32", "float16", "int8", "uint8", "int32")
    module = lower_products([np.abs(9 * random(WIDE, WIDE)).astype(dtype) for dtype in types])
    (expected,) = run_once(compile_plainly(module, LLVM), [random(ROWS, WIDE)])
    (found,) = outputs(load_exported(tmp_path / "net.so", module))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.numpy() / scale, expected / scale, atol=1e-5)


def test_equal_weights_are_there_once(tmp_path: Path) -> None:
    weight = random(WIDE, WIDE)
    load_exported(tmp_path / "one.so", lower_products([weight]))
    load_exported(tmp_path / "three.so", lower_products([weight, weight.copy(), weight.copy()]))
    one, three = ((tmp_path / name).stat().st_size for name in ("one.so", "three.so"))
    assert three - one < weight.nbytes / 2 < one


def test_a_tar_of_objects_is_used_alike(tmp_path: Path) -> None:
    module = lower_products([random(WIDE, WIDE)])
    expected = run_once(compile_module(module, LLVM), [random(ROWS, WIDE)])
    found = outputs(load_exported(tmp_path / "net.tar", module))
    np.testing.assert_array_equal(found[0].numpy(), expected[0])


def test_a_constant_that_a_graph_returns_is_no_page_of_a_file_that_may_go(tmp_path: Path) -> None:
    result = random(WIDE, WIDE + 1)
    returned = outputs(
        load_exported(tmp_path / "net.so", lower_products([random(WIDE, WIDE)], result))
    )[1]
    assert find_file(returned.data_ptr()) != str(tmp_path / "net.so")
    np.testing.assert_array_equal(returned.numpy(), result)


def test_a_process_without_tvm_is_told_why_it_cannot_load_a_library(tmp_path: Path) -> None:
    load_exported(tmp_path / "net.so", lower_products([random(WIDE, WIDE)]))
    code = f"import ctypes; ctypes.CDLL({str(tmp_path / 'net.so')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "undefined symbol: TVMFFITensorFromDLPack" in done.stderr


def test_a_full_disk_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(library_weights, "compile_c", refuse)
    with pytest.raises(TunerError, match="No space left on device"):
        compile_module(lower_products([random(WIDE, WIDE)]), LLVM)
