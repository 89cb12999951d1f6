"""Tasks of networks, as stock's `relax_integration.extract_tasks` and ours find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tuner
from cluster.app.passes.anchors import anchor_key
from examples.dense import dense
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import extract, program_hash
from tests.compatibility.database_programs import TARGET, meta_schedule, module_of, stock_target
from tuner.errors import TunerError
from tuner.task import Task

pytestmark = [pytest.mark.tvm]

Emit = Callable[..., Any]


def network(shape: tuple[int, ...], body: Callable[[Any, Emit], Any]) -> Any:
    """A network in Relax of one input."""
    from tvm import relax

    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(x, builder.emit))
        builder.emit_func_output(out)
    return builder.get()


def constant(*shape: int) -> Any:
    from tvm import relax

    return relax.const(np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32))


def three_epilogues() -> Any:
    """Products of one shape, each with something else after it."""
    from tvm.relax import op

    def body(x: Any, emit: Emit) -> Any:
        for after in (op.nn.relu, op.tanh, op.sigmoid):
            x = emit(after(emit(op.matmul(x, constant(32, 32)))))
        return x

    return network((8, 32), body)


def convolutions() -> Any:
    """Two convolutions of one shape with a bias between, and a residual at the end."""
    from tvm.relax import op

    def body(x: Any, emit: Emit) -> Any:
        y = emit(op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1))
        y = emit(op.nn.relu(emit(op.add(y, constant(1, 8, 1, 1)))))
        return emit(op.add(emit(op.nn.conv2d(y, constant(8, 8, 3, 3), padding=1)), x))

    return network((1, 8, 10, 10), body)


def mixed() -> Any:
    """Products of two shapes, and a softmax between them."""
    from tvm.relax import op

    def body(x: Any, emit: Emit) -> Any:
        for _ in range(2):
            wide = emit(op.nn.softmax(emit(op.matmul(x, constant(16, 48)))))
            x = emit(op.matmul(wide, constant(48, 16)))
        return x

    return network((12, 16), body)


NETWORKS: dict[str, Callable[[], Any]] = {
    "dense": dense,
    "one layer": lambda: dense(layers=1),
    "three epilogues": three_epilogues,
    "convolutions": convolutions,
    "mixed": mixed,
}


def by_stock(lowered: Any, equality: str = "structural") -> list[Any]:
    found = meta_schedule().relax_integration.extract_tasks(
        lowered, stock_target(), {}, module_equality=equality
    )
    return list(found)


def weights_of_stock(lowered: Any) -> dict[str, float]:
    """The weights of stock's tasks by the hash of their programs."""
    return {
        tvm_compat.structural_hash_hex(tvm_compat.normalize(task.dispatched[0]["main"])): float(
            task.weight
        )
        for task in by_stock(lowered)
    }


def weights_of_ours(tasks: list[Task]) -> dict[str, float]:
    return {program_hash(task): task.weight for task in tasks}


@pytest.fixture(params=NETWORKS)
def lowered(request: pytest.FixtureRequest) -> Any:
    return tuner.lower(NETWORKS[request.param](), TARGET)


def test_both_find_the_same_programs_with_the_same_weights(lowered: Any) -> None:
    ours = extract(lowered, TARGET)
    assert weights_of_ours(ours) == weights_of_stock(lowered)
    named = {str(task.task_name): float(task.weight) for task in by_stock(lowered)}
    assert {task.name: task.weight for task in ours} == named


def test_constants_of_a_graph_are_no_part_of_tasks(lowered: Any) -> None:
    assert len(extract(lowered, TARGET)) == len(by_stock(lowered, "ignore-tensor"))


def test_stock_merges_by_anchor_what_ours_tells_apart_and_serves_by_anchor(lowered: Any) -> None:
    """A program without an anchor is a task of its own to both."""
    keys = [anchor_key(task) or task.key for task in extract(lowered, TARGET)]
    assert len(set(keys)) == len(by_stock(lowered, "anchor-block"))


def test_of_three_epilogues_stock_has_one_task_by_anchor_and_ours_three_with_one_anchor() -> None:
    lowered = tuner.lower(three_epilogues(), TARGET)
    assert (len(by_stock(lowered)), len(by_stock(lowered, "anchor-block"))) == (3, 1)
    tasks = extract(lowered, TARGET)
    assert (len(tasks), len({anchor_key(task) for task in tasks})) == (3, 1)


def test_programs_that_are_scheduled_are_tasks_of_stock_and_none_of_ours() -> None:
    """Stock leaves them out later, when it makes what is tuned of its tasks."""
    lowered = tuner.lower(mixed(), TARGET)
    everything = len(by_stock(lowered))
    defaults: Any = tuner.passes.Defaults(TARGET)
    scheduled = defaults(lowered)
    assert len(by_stock(scheduled)) == everything
    with pytest.raises(TunerError, match="nothing to tune"):
        extract(scheduled, TARGET)


def test_programs_without_a_graph_are_tasks_of_ours_and_none_of_stock() -> None:
    """Stock tunes them with another function, `tune_tir`."""
    module = tuner.lower(module_of("plain", "relu"), TARGET)
    assert not by_stock(module)
    assert [task.weight for task in extract(module, TARGET)] == [1.0, 1.0]


def test_a_task_holds_what_a_tune_context_holds() -> None:
    from tvm_ffi import structural_equal

    (task,) = extract(tuner.lower(module_of("plain"), TARGET), TARGET)
    module = tuner.lower(module_of("plain"), TARGET)
    context = meta_schedule().TuneContext(
        mod=module["plain"], target=stock_target(), task_name="plain", num_threads=1
    )
    assert (task.name, task.target) == (str(context.task_name), TARGET)
    assert str(stock_target(task.target)) == str(context.target)
    ours = tvm_compat.normalize(context.mod["main"])
    assert program_hash(task) == tvm_compat.structural_hash_hex(ours)
    assert structural_equal(context.mod["main"].body, module["plain"].body)
    assert context.rand_state != -1
