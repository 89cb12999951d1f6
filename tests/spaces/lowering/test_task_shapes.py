"""Which shapes a program meets: they follow from the calls of its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spaces.frontends.memory_model import model_in_memory
from spaces.ir import tvm_compat
from spaces.ir.symbolic import symbols
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.lowering.task_shapes import shapes_of
from tuner.dynamic.shapes import MOST_SHAPES, joint
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.task import Instance, Shapes

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
Build = Callable[[Any, Any], Any]


def var(name: str) -> Any:
    from tvm.tirx import Var

    return Var(name, "int64")


def lowered(shape: Callable[[Any], Any], build: Build, largest: dict[str, int]) -> Any:
    """A lowered graph with one input, of a shape over the variable `T`."""
    from tvm import relax

    t = var("T")
    x = relax.Var("x", relax.TensorType(shape(t), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(build(builder, x))
        builder.emit_func_output(out)
    spec = ModelSpec("model", dims=tuple((name, (size,)) for name, size in largest.items()))
    return lower(model_in_memory(builder.get(), spec).module, LLVM)


def relu(builder: Any, x: Any) -> Any:
    from tvm import relax

    return builder.emit(relax.op.nn.relu(x))


def open_programs(module: Any) -> list[str]:
    return [name for name, function in tvm_compat.prim_funcs(module) if symbols(function)]


def found(module: Any, name: str, shapes: Shapes) -> dict[Instance, float]:
    return dict(shapes_of(module, name, shapes))


T = joint([("T", (2, 5))])


def test_a_program_alone_meets_the_shapes_of_the_model() -> None:
    from tvm import te
    from tvm.ir import IRModule

    t = var("T")
    a = te.placeholder((t, 4), name="A")
    out = te.compute((t, 4), lambda i, j: a[i, j] + 1.0, name="B")
    module = IRModule({"main": te.create_prim_func([a, out])})
    weighted = ((("T", 2),), 3.0), ((("T", 5),), 1.0)
    assert found(module, "main", weighted) == {(("T", 2),): 3.0, (("T", 5),): 1.0}


def test_a_program_named_after_a_multiple_meets_multiples() -> None:
    from tvm import te
    from tvm.ir import IRModule

    t = var("T_x16_p3")
    a = te.placeholder((t, 4), name="A")
    out = te.compute((t, 4), lambda i, j: a[i, j] + 1.0, name="B")
    module = IRModule({"main": te.create_prim_func([a, out])})
    assert list(found(module, "main", T)) == [(("T_x16_p3", 35),), (("T_x16_p3", 83),)]


def test_a_program_without_symbols_has_no_shapes() -> None:
    module = lowered(lambda t: (3, 8), relu, {})
    (name,) = [name for name, _ in tvm_compat.prim_funcs(module)]
    assert shapes_of(module, name, ()) == ()


def test_shapes_follow_from_the_call() -> None:
    from tvm import relax

    def flat(builder: Any, x: Any) -> Any:
        rows = 4 * x.ty.shape.values[0]
        return relu(builder, builder.emit(relax.op.reshape(x, (rows, 8))))

    module = lowered(lambda t: (t, 32), flat, {"T": 5})
    (name,) = open_programs(module)
    (symbol,) = symbols(module[name])
    assert list(found(module, name, T)) == [((symbol, 8),), ((symbol, 20),)]


def test_a_program_called_with_two_sizes_meets_both() -> None:
    """Equal programs are one: here of T rows, and of four times as many."""
    from tvm import relax

    def twice(builder: Any, x: Any) -> Any:
        t = x.ty.shape.values[0]
        first = builder.emit(relax.op.exp(relu(builder, x)))
        second = builder.emit(relax.op.reshape(first, (4 * t, 8)))
        tall = builder.emit(relax.op.exp(relu(builder, second)))
        return builder.emit(relax.op.sum(tall))

    module = lowered(lambda t: (t, 32), twice, {"T": 5})
    tasks = extract(module, LLVM, shapes=T)
    met = {tuple(i for i, _ in task.shapes) for task in tasks}
    sizes = {value for instances in met for instance in instances for _, value in instance}
    assert sizes == {2, 5, 8, 20}


def test_calls_of_one_program_with_t_and_4_t_rows_are_added_up() -> None:
    from tvm import relax

    n, t = var("n"), var("T")
    from tvm import te

    a = te.placeholder((n, 8), name="A")
    out = te.compute((n, 8), lambda i, j: a[i, j] + 1.0, name="B")
    builder = relax.BlockBuilder()
    program = builder.add_func(te.create_prim_func([a, out]), "adding")
    small = relax.Var("x", relax.TensorType((t, 8), "float32"))
    large = relax.Var("y", relax.TensorType((4 * t, 8), "float32"))
    with builder.function("main", [small, large]):
        with builder.dataflow():
            results = [builder.emit(relax.call_tir(program, [v], v.ty)) for v in (small, large)]
            result = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(result)
    module = builder.get()
    shapes = ((("T", 1),), 1.0), ((("T", 4),), 2.0)
    assert found(module, "adding", shapes) == {
        (("n", 1),): 1.0,
        (("n", 4),): 1.0 + 2.0,
        (("n", 16),): 2.0,
    }


def test_shapes_of_inputs_that_were_made_plain_follow_too() -> None:
    module = lowered(lambda t: (16 * t, 8), relu, {"T": 5})
    (name,) = open_programs(module)
    sizes = [value for instance in found(module, name, T) for _, value in instance]
    assert sizes == [32, 80]


def test_a_dimension_without_a_domain_is_named_in_one_line() -> None:
    module = lowered(lambda t: (t, 8), relu, {"T": 5})
    (name,) = open_programs(module)
    with pytest.raises(TunerError, match=r"dimension T has no domain: .* --dim T=1\.\.128") as said:
        shapes_of(module, name, ())
    assert "\n" not in str(said.value)


def test_a_size_below_zero_is_told_with_the_shape_that_gives_it() -> None:
    from tvm import relax

    def shorter(builder: Any, x: Any) -> Any:
        cut = builder.emit(relax.op.strided_slice(x, [0], [3], [x.ty.shape.values[0]]))
        return relu(
            builder, builder.match_cast(cut, relax.TensorType((var_of(x) - 3, 8), "float32"))
        )

    def var_of(x: Any) -> Any:
        return x.ty.shape.values[0]

    module = lowered(lambda t: (t, 8), shorter, {"T": 5})
    (name,) = [n for n in open_programs(module) if "relu" in n]
    with pytest.raises(TunerError) as said:
        shapes_of(module, name, T)
    assert str(said.value).startswith("--dim: with T=2 the dimension ")
    assert str(said.value).endswith(" is below 0")


def test_more_shapes_than_anyone_needs_are_stood_for_by_some() -> None:
    module = lowered(lambda t: (t, 8), relu, {"T": 5000})
    (name,) = open_programs(module)
    shapes = shapes_of(module, name, joint([("T", tuple(range(1, 5001)))]))
    assert len(shapes) == MOST_SHAPES
    assert sum(weight for _, weight in shapes) == 5000


def test_a_task_says_its_shapes_and_the_mean_of_its_operations() -> None:
    module = lowered(lambda t: (t, 8), relu, {"T": 5})
    (task,) = extract(module, LLVM, shapes=(((("T", 2),), 3.0), ((("T", 4),), 1.0)))
    assert task.shapes == (((("T", 2),), 3.0), ((("T", 4),), 1.0))
    assert task.flops == pytest.approx((3 * 2 + 4) * 8 / 4)
