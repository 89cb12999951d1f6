"""Programs over `16 * T` rows: each such expression becomes a dimension of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.ir import tvm_compat
from spaces.ir.symbolic import symbols
from spaces.lowering.extract_tasks import describe_untuned
from spaces.lowering.lower import lower
from spaces.lowering.plain_shapes import with_plain_inputs, with_plain_shapes
from tuner.dynamic.derived_names import bases_of, derive

pytestmark = pytest.mark.tvm
LLVM = '{"kind":"llvm","num-cores":1}'


def var(name: str, dtype: str = "int64") -> Any:
    from tvm.tirx import Var

    return Var(name, dtype)


def adding(*shape: Any) -> Any:
    """A program that adds one to each element of a tensor of some shape."""
    from tvm import te

    a = te.placeholder(shape, name="A")
    return te.create_prim_func([a, te.compute(shape, lambda *i: a(*i) + 1.0, name="B")])


def module_of(function: Any) -> Any:
    from tvm.ir import IRModule

    return IRModule({"main": function.with_attr("global_symbol", "main")})


def plain(function: Any) -> Any:
    return with_plain_shapes(module_of(function))["main"]


def shapes(function: Any) -> list[Any]:
    return [tvm_compat.param_shape(p) for p in function.params]


def ran(module: Any, *arrays: Any) -> Any:
    """The last of some tensors after a module's "main" ran on them."""
    import tvm

    library = tvm.compile(module, target=tvm.target.Target({"kind": "llvm"}))
    tensors = [tvm.runtime.tensor(a) for a in arrays]
    library["main"](*tensors)
    return tensors[-1].numpy()


def test_a_program_over_16_t_rows_can_be_called_by_itself() -> None:
    t = var("T")
    made = plain(adding(16 * t, 3))
    assert shapes(made) == [["T_x16", 3], ["T_x16", 3]]
    a = np.arange(96, dtype="float32").reshape(32, 3)
    np.testing.assert_array_equal(ran(module_of(made), a, np.zeros_like(a)), a + 1)


def test_it_computes_shapes_that_no_t_has() -> None:
    a = np.arange(15, dtype="float32").reshape(5, 3)
    made = plain(adding(16 * var("T"), 3))
    np.testing.assert_array_equal(ran(module_of(made), a, np.zeros_like(a)), a + 1)


@pytest.mark.parametrize(
    ("dim", "name"),
    [
        (lambda t: 16 * t, "T_x16"),
        (lambda t: 16 * t + 3, "T_x16_p3"),
        (lambda t: t + 1, "T_x1_p1"),
        (lambda t: t * 2 * 3, "T_x6"),
        (lambda t: t + t, "T_x2"),
        (lambda t: t - 1, "T_x1_m1"),
        (lambda t: t // 2, "T_x1_d2"),
        (lambda t: (t + 3) // 4, "T_x1_p3_d4"),
        (lambda t: (t - 1) // 2 + 1, "T_x1_m1_d2_p1"),
        (lambda t: 1 + 3 * (t // 2), "T_x1_d2_x3_p1"),
    ],
)
def test_a_dimension_is_named_after_its_expression(dim: Callable[[Any], Any], name: str) -> None:
    assert shapes(plain(adding(dim(var("T")), 3)))[0] == [name, 3]


@pytest.mark.parametrize(
    "dim",
    [
        lambda t: 7 - t,
        lambda t: t * t,
        lambda t: t * var("U"),
        lambda t: t % 4,
    ],
)
def test_what_no_steps_lead_to_gets_a_name_that_says_nothing(dim: Callable[[Any], Any]) -> None:
    (name, _) = shapes(plain(adding(dim(var("T")), 3)))[0]
    assert name == "dim"
    assert derive(name, {"T": 3, "U": 2}) is None


def test_the_value_of_a_dimension_follows_from_its_name() -> None:
    assert derive("T_x16", {"T": 3}) == 48
    assert derive("T_x16_p3", {"T": 3}) == 51
    assert derive("T", {"T": 3}) == 3
    assert derive("U_x16", {"T": 3}) is None
    assert derive("T_x", {"T": 3}) is None
    assert derive("batch_x_len_x4", {"batch_x_len": 2, "batch": 9}) == 8
    assert derive("T_x16", {"T_x16": 5, "T": 3}) == 5, "its own value goes first"
    assert [derive("H_x1_m1_d2_p1", {"H": h}) for h in (0, 1, 2, 7, 8)] == [0, 1, 1, 4, 4]
    assert derive("T_x1_d0", {"T": 3}) is None
    assert derive("T_x1_m5", {"T": 3}) == -2


def test_a_name_says_which_dimension_it_follows() -> None:
    assert bases_of("T_x16_p3") == bases_of("T_x1_m1_d2") == bases_of("T") == ("T",)
    assert bases_of("batch_x_len") == ("batch_x_len",)


def test_equal_expressions_are_one_dimension_and_others_are_others() -> None:
    from tvm import te

    t = var("T")
    a, b = te.placeholder((16 * t, 4), name="A"), te.placeholder((t * 4 * 4, 4), name="B")
    c = te.placeholder((2 * t,), name="C")
    out = te.compute((16 * t, 4), lambda i, j: a[i, j] + b[i, j] + c[0], name="D")
    made = plain(te.create_prim_func([a, b, c, out]))
    assert shapes(made) == [["T_x16", 4], ["T_x16", 4], ["T_x2"], ["T_x16", 4]]
    assert list(symbols(made)) == ["T_x16", "T_x2"]


def test_dimensions_a_constant_apart_are_two() -> None:
    t = var("T")
    assert shapes(plain(adding(16 * t, 16 * t + 3)))[0] == ["T_x16", "T_x16_p3"]


def test_a_variable_that_is_a_dimension_too_keeps_its_name() -> None:
    t = var("T")
    made = plain(adding(t, 16 * t))
    assert shapes(made) == [["T", "T_x16"], ["T", "T_x16"]]


def test_a_name_that_is_taken_gets_a_number() -> None:
    t = var("T")
    assert shapes(plain(adding(16 * t, var("T_x16"))))[0] == ["T_x16_2", "T_x16"]


def test_dimensions_of_32_bits_stay_so() -> None:
    made = plain(adding(16 * var("T", "int32"), 3))
    assert shapes(made)[0] == ["T_x16", 3]
    assert str(symbols(made)["T_x16"].ty.dtype) == "int32"


def test_plain_programs_come_back_as_they_are() -> None:
    module = module_of(adding(var("T"), 3))
    assert with_plain_shapes(module).same_as(module)
    static = module_of(adding(2, 3))
    assert with_plain_shapes(static).same_as(static)


def test_a_program_that_computes_with_the_variable_finds_it_from_the_shape() -> None:
    from tvm import te, tirx

    t = var("T")
    a = te.placeholder((16 * t, 3), name="A")
    out = te.compute((16 * t, 3), lambda i, j: a[i, j] + tirx.Cast("float32", t), name="B")
    module = module_of(te.create_prim_func([a, out]))
    made = with_plain_shapes(module)["main"]
    array = np.zeros((32, 3), dtype="float32")
    np.testing.assert_array_equal(ran(module_of(made), array, np.zeros_like(array)), array + 2)


def test_a_program_that_cannot_be_helped_stays_as_it_is() -> None:
    """Nobody can tell T where a shape is its square and the program computes with it."""
    from tvm import te, tirx

    t = var("T")
    a = te.placeholder((t * t, 3), name="A")
    out = te.compute((t * t, 3), lambda i, j: a[i, j] + tirx.Cast("float32", t), name="B")
    module = module_of(te.create_prim_func([a, out]))
    assert with_plain_shapes(module).same_as(module)


def lowered_graph(rows: Callable[[Any], Any]) -> Any:
    """A lowered graph over `T`, whose program works on `rows(T)` rows of a reshaped input."""
    from tvm import relax

    from spaces.lowering.lower import lower

    t = var("T")
    x = relax.Var("x", relax.TensorType((t, 32), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            tall = builder.emit(relax.op.reshape(x, (rows(t), 32 // _times(rows))))
            out = builder.emit_output(relax.op.nn.relu(relax.op.add(tall, tall)))
        builder.emit_func_output(out)
    return lower(builder.get(), '{"kind":"llvm","num-cores":1}')


def _times(rows: Callable[[Any], Any]) -> int:
    return int(rows(1))


def test_a_graphs_program_loses_the_scalar_that_said_what_t_is() -> None:
    lowered = lowered_graph(lambda t: 4 * t)
    (program,) = [f for _, f in tvm_compat.prim_funcs(lowered) if symbols(f)]
    assert all(tvm_compat.param_dims(p) is not None for p in program.params)
    assert list(symbols(program)) == ["T_x4"]


def test_a_graph_with_changed_calls_computes_the_same() -> None:
    import tvm
    from tvm import relax

    from spaces.codegen.executable import compile_module

    lowered = lowered_graph(lambda t: 4 * t)
    executable = compile_module(lowered, '{"kind":"llvm","num-cores":1}')
    machine = relax.VirtualMachine(executable.library, tvm.cpu())
    for rows in (1, 2, 7):
        x = np.random.default_rng(rows).standard_normal((rows, 32)).astype("float32")
        got = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(got, np.maximum(2 * x.reshape(4 * rows, 8), 0), rtol=1e-6)


def test_what_is_near_a_dimension_is_told_by_that_dimension() -> None:
    """The rows of a convolution with a stride are no multiple of T; what follows pads them."""
    from tvm import te, tirx

    t = var("T")
    rows = (t - 1) // 2 + 1
    a = te.placeholder((rows, 3), name="A")
    wide = te.compute(
        (rows + 2, 3),
        lambda i, j: tirx.if_then_else(i < rows, a[tirx.min(i, rows - 1), j], 1.0),
        name="W",
    )
    out = te.compute((rows, 3), lambda i, j: wide[i + 2, j] * 2.0, name="B")
    made = te.create_prim_func([a, out])
    scalar = tirx.PrimFunc([t, *made.params], made.body, made.ret_type, made.attrs)
    (program,) = (f for _, f in tvm_compat.prim_funcs(with_plain_shapes(module_of(scalar))))
    assert shapes(program) == [["T_x1_m1_d2_p1", 3]] * 2
    array = np.arange(15, dtype="float32").reshape(5, 3)
    got = ran(module_of(program), array, np.zeros_like(array))
    want = np.concatenate([array, np.ones((2, 3), "float32")])[2:] * 2
    np.testing.assert_array_equal(got, want)


def test_only_the_scalar_is_left_out_of_a_call() -> None:
    import tvm
    from tvm import relax, te, tirx

    from spaces.codegen.executable import compile_module

    t = var("T")
    a, b = te.placeholder((4 * t, 8), name="A"), te.placeholder((4 * t, 8), name="B")
    out = te.compute((4 * t, 8), lambda i, j: a[i, j] - b[i, j], name="C")
    made = te.create_prim_func([a, b, out])
    scalar = symbols(made)["T"]
    program = tirx.PrimFunc([scalar, *made.params], made.body, made.ret_type, made.attrs)
    rows = var("T")
    x, y = (relax.Var(name, relax.TensorType((rows, 32), "float32")) for name in "xy")
    builder = relax.BlockBuilder()
    callee = builder.add_func(program.without_attr("global_symbol"), "minus")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            tall = [builder.emit(relax.op.reshape(v, (4 * rows, 8))) for v in (x, y)]
            call = relax.call_tir(callee, relax.Tuple([rows, *tall]), tall[0].ty)
            result = builder.emit_output(builder.emit(call))
        builder.emit_func_output(result)
    module = with_plain_shapes(builder.get())
    assert shapes(module["minus"]) == [["T_x4", 8]] * 3
    machine = relax.VirtualMachine(
        compile_module(module, '{"kind":"llvm","num-cores":1}').library, tvm.cpu()
    )
    left, right = (np.random.default_rng(n).random((3, 32), dtype="float32") for n in (0, 1))
    got = machine["main"](tvm.runtime.tensor(left), tvm.runtime.tensor(right)).numpy()
    np.testing.assert_array_equal(got, (left - right).reshape(12, 8))


def graph_over(*dims: Any) -> Any:
    """A graph that adds one to each of its inputs, one for each of some numbers of rows."""
    from tvm import relax

    params = [relax.Var(f"x{i}", relax.TensorType((d, 4), "float32")) for i, d in enumerate(dims)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            one = relax.const(np.float32(1))
            sums = [builder.emit(relax.op.add(p, one)) for p in params]
            out = builder.emit_output(relax.Tuple(sums))
        builder.emit_func_output(out)
    return builder.get()


def test_a_graphs_input_of_16_t_rows_becomes_a_dimension_of_its_own() -> None:
    module = with_plain_inputs(graph_over(16 * var("T")))
    assert tvm_compat.param_shape(module["main"].params[0]) == ["T_x16", 4]


def test_two_expressions_of_inputs_are_two_dimensions() -> None:
    t = var("T")
    module = with_plain_inputs(graph_over(16 * t, 2 * t + 1, 16 * t))
    found = [tvm_compat.param_shape(p) for p in module["main"].params]
    assert found == [["T_x16", 4], ["T_x2_p1", 4], ["T_x16", 4]]


def test_an_input_that_is_a_variable_alone_leaves_a_graph_as_it_is() -> None:
    module = graph_over(var("T"), 3)
    assert with_plain_inputs(module).same_as(module)


@pytest.mark.parametrize(("new", "past"), [(3, 4), (1, 7), (2, 0)])
def test_a_size_that_is_in_a_sum_alone_is_what_the_other_terms_leave(new: int, past: int) -> None:
    from tvm import relax, te, tirx

    n, known = tirx.Var("n", "int64"), tirx.Var("past", "int64")
    builder = relax.BlockBuilder()
    rows = relax.Var("rows", relax.TensorType((n,), "float32"))
    before = relax.Var("before", relax.TensorType((known,), "float32"))

    def behind(whole: Any, some: Any, first: Any) -> Any:
        def element(i: Any) -> Any:
            return te.if_then_else(whole[first + i] > some[i], 0.0, whole[first + i] + first)

        return te.compute(some.shape, element, name="behind")

    with builder.function("main", [rows, before]):
        with builder.dataflow():
            whole = builder.emit(relax.op.concat((before, rows), 0))
            out = builder.emit_output(builder.emit_te(behind, whole, rows, known))
        builder.emit_func_output(out)
    lowered = lower(builder.get(), LLVM)
    shapes = (((("n", new), ("past", past)), 1.0),)
    assert describe_untuned(lowered, shapes) == ""
    x, y = np.arange(new, dtype="float32"), np.ones(past, "float32")
    (got,) = run_once(compile_module(lowered, LLVM), [x, y])
    np.testing.assert_array_equal(got, x + past)
