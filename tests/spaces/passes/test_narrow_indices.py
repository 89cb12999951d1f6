"""Integers are narrowed where they are indices, and nowhere where a result could tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module
from spaces.ir import tvm_compat
from spaces.passes.narrow_indices import with_narrow_indices

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
Array = np.ndarray[Any, Any]
Element = Callable[[Any, Any], Any]
"""An element of the result, of the tensor that is given and the position."""
N = 4096
AT = np.arange(N, dtype="int64")
X = np.linspace(0.1, 1, N).astype("float32")
U = np.full(N, 3_000_000_000, "uint32")
S = np.full(N, 4095, "int32")


def wide(number: int) -> Any:
    from tvm import tirx

    return tirx.const(number, "int64")


def f32(value: Any) -> Any:
    from tvm import tirx

    return tirx.const(value, "float32") if isinstance(value, float) else value.astype("float32")


def chosen(condition: Any, value: Any) -> Any:
    from tvm import tirx

    return tirx.if_then_else(condition, value, tirx.const(0.0, "float32"))


def selected(condition: Any, value: Any) -> Any:
    from tvm import tirx

    return tirx.Select(condition, value, tirx.const(0.0, "float32"))


def least(a: Any, b: Any) -> Any:
    from tvm import tirx

    return tirx.min(a, b)


def greatest(a: Any, b: Any) -> Any:
    from tvm import tirx

    return tirx.max(a, b)


def floor(value: Any) -> Any:
    from tvm import tirx

    return tirx.floor(value)


def i64(value: Any) -> Any:
    return value.astype("int64")


def ones_of(number: Any) -> Any:
    from tvm import tirx

    return tirx.popcount(number)


def program(given: Array, element: Element) -> Any:
    from tvm import te

    x = te.placeholder((wide(given.size),), str(given.dtype), "X")
    made = te.compute((wide(N),), lambda i: element(x, i), "O")
    return te.create_prim_func([x, made]).with_attr("global_symbol", "main")


GROWING = AT * 1000003 + AT * AT
PROGRAMS: dict[str, tuple[Array, Element, Array]] = {
    "a_value": (
        X,
        lambda x, i: x[i] * f32(i * wide(1000003)),
        X * (AT * 1000003).astype("float32"),
    ),
    "a_difference": (
        X,
        lambda x, i: x[i] + f32(i - wide(4_000_000_000)),
        X + (AT - 4_000_000_000).astype("float32"),
    ),
    "a_condition": (
        X,
        lambda x, i: chosen(i * wide(1000003) + i * i < wide(2**31 - 1), x[i]),
        np.where(GROWING < 2**31 - 1, X, 0),
    ),
    "what_is_selected_by": (
        X,
        lambda x, i: selected(i * wide(1000003) + i * i < wide(2**31 - 1), x[i]),
        np.where(GROWING < 2**31 - 1, X, 0),
    ),
    "what_becomes_an_index": (
        X,
        lambda x, i: x[least(i * wide(1000003) + i * i, wide(10))],
        X[np.minimum(GROWING, 10)],
    ),
    "a_rest_of_what_is_large": (
        X,
        lambda x, i: x[(i * wide(1000003) // wide(4093)) % wide(1000)],
        X[(AT * 1000003 // 4093) % 1000],
    ),
    "what_was_a_float": (
        X,
        lambda x, i: x[i64(floor(f32(i) * f32(1e6))) // wide(2**20) % wide(100)],
        X[np.floor(AT.astype("float32") * np.float32(1e6)).astype("int64") // 2**20 % 100],
    ),
    "a_float_of_data": (
        X,
        lambda x, i: x[least(greatest(i64(x[i] * f32(4e9)), wide(0)), wide(N - 1))],
        np.full(N, X[-1]),
    ),
    "unsigned_data": (
        U,
        lambda u, i: chosen(u[i].astype("int64") > wide(5), f32(i)),
        AT.astype("float32"),
    ),
    "signed_data": (
        S,
        lambda s, i: f32(s[i].astype("int64") * wide(1000003) // wide(1000)),
        (S.astype("int64") * 1000003 // 1000).astype("float32"),
    ),
}


@pytest.fixture(scope="module")
def library() -> Any:
    """All of them, compiled as `export --lib` does it."""
    import tvm

    made = {
        name: program(given, element).with_attr("global_symbol", name)
        for name, (given, element, _) in PROGRAMS.items()
    }
    return compile_module(tvm.IRModule(made), LLVM).library


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_computed_is_not_narrowed(library: Any, name: str) -> None:
    import tvm

    given, _, want = PROGRAMS[name]
    out = tvm.runtime.tensor(np.zeros(N, "float32"))
    library[name](tvm.runtime.tensor(given), out)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-6)


def loop_types(function: Any) -> set[str]:
    import tvm
    import tvm_ffi

    found: set[str] = set()

    def look(loop: Any) -> None:
        found.add(str(loop.loop_var.ty.dtype))

    tvm_ffi.structural_walk(function.body, (tvm.tirx.For, look))
    return found


def test_what_surely_fits_is_narrowed() -> None:
    for element in (
        lambda x, i: x[i] * f32(i * wide(1003) - wide(7)),
        lambda x, i: chosen(i * wide(3) < wide(N), x[i]),
        lambda x, i: x[(i * wide(7) + wide(3)) % wide(N)],
        lambda x, i: x[least(i64(floor(f32(i) * f32(0.5) + f32(0.25))) + wide(1), wide(9))],
    ):
        assert loop_types(with_narrow_indices(program(X, element))) == {"int32"}


def test_one_product_that_may_not_fit_keeps_all_of_a_program_wide() -> None:
    function = program(X, PROGRAMS["a_value"][1])
    assert with_narrow_indices(function).same_as(function)


def test_bits_that_are_counted_are_not_halved() -> None:
    function = program(X, lambda x, i: x[i] + f32(ones_of(i - wide(5000))))
    assert with_narrow_indices(function).same_as(function)


def test_a_tensor_of_more_elements_than_32_bits_count_is_read_to_its_end() -> None:
    import tvm
    from tvm import te

    given = te.placeholder((wide(3), wide(2**30)), "uint8", "X")
    out = te.compute((wide(3),), lambda i: given[i, wide(2**30 - 1)], "O")
    function = te.create_prim_func([given, out]).with_attr("global_symbol", "main")
    assert loop_types(with_narrow_indices(function)) == {"int64"}
    raw = np.zeros(3 * 2**30 + 64, "uint8")  # pages that nobody touches take no memory
    start = -raw.ctypes.data % 64  # TVM wants tensors aligned
    large = raw[start : start + 3 * 2**30].reshape(3, 2**30)
    large[:, -1] = (5, 6, 7)
    ends = tvm.runtime.tensor(np.zeros(3, "uint8"))
    library = compile_module(tvm.IRModule({"main": function}), LLVM).library
    library["main"](tvm.runtime.from_dlpack(large), ends)
    assert ends.numpy().tolist() == [5, 6, 7]


def test_sizes_that_are_not_known_stay_wide() -> None:
    from tvm import te, tirx

    n = tirx.Var("n", "int64")
    given = te.placeholder((n, wide(8)), name="X")
    out = te.compute(given.shape, lambda i, j: given[i, j] + 1, "O")
    function = te.create_prim_func([given, out])
    assert with_narrow_indices(function).same_as(function)
    assert tvm_compat.param_dims(function.params[0])[0].same_as(n)
