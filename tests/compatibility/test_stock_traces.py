"""Schedules of programs with the same largest block, by stock's anchor traces and by ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tuner
from cluster.app.driver.export import export_database
from cluster.app.passes.anchors import Anchors
from spaces.design_space.realize import realize
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import task_of
from tests.compatibility.database_programs import (
    ANCHOR,
    TARGET,
    by_rules,
    by_template,
    meta_schedule,
    module_of,
    program,
    right,
    run_of,
    same,
    stock_target,
)
from tests.compatibility.stock_programs import CUDA, VNNI
from tuner.candidate import Candidate
from tuner.task import Task

pytestmark = [pytest.mark.tvm]

long = pytest.mark.long
EPILOGUES = ("relu", "biased", "biased_relu", "gated")
PROLOGUE = "scaled_input"
FOUR_CORES = '{"kind":"llvm","num-cores":4}'


def by_stock(function: Any, trace: Any, target: str = TARGET) -> Any:
    """A program to which stock applies the trace of another."""
    from tvm.s_tir import Schedule

    schedule = Schedule(tvm_compat.normalize(function))
    apply = meta_schedule().trace_apply.schedule_using_anchor_trace
    apply(schedule, trace, stock_target(target))
    return schedule.mod["main"]


def refused_by_stock(function: Any, trace: Any, target: str = TARGET) -> bool:
    try:
        by_stock(function, trace, target)
    except Exception:  # TVM raises whatever its C++ side threw
        return True
    return False


def loops(function: Any, block: str) -> list[tuple[str, int]]:
    """The kinds and extents of the loops around a block, from the outside."""
    from tvm.s_tir import Schedule

    schedule = Schedule(tvm_compat.normalize(function))
    around = [schedule.get(loop) for loop in schedule.get_loops(schedule.get_sblock(block))]
    return [(str(loop.kind), int(loop.extent)) for loop in around]


@dataclass(frozen=True)
class Anchored:
    """What a run of the plain program gives to others, and the trace that its export holds."""

    module: Any
    missed: dict[str, str]
    trace: Any


def anchored(folder: Path, faster: Callable[[Task], Candidate]) -> Anchored:
    run = run_of(folder, "plain", faster=faster)
    export_database(run, folder / "database")
    database = meta_schedule().database.JSONDatabase(work_dir=str(folder / "database"))
    best: Any = tuner.passes.ApplyBest(run, target=TARGET)
    module = best(module_of("plain", "gated", PROLOGUE))
    return Anchored(module, best.missed, database.get_all_tuning_records()[0].trace)


@pytest.fixture(scope="module")
def of_rules(tmp_path_factory: pytest.TempPathFactory) -> Anchored:
    return anchored(tmp_path_factory.mktemp("rules"), by_rules)


@pytest.fixture(scope="module")
def of_template(tmp_path_factory: pytest.TempPathFactory) -> Anchored:
    return anchored(tmp_path_factory.mktemp("template"), by_template)


def test_a_trace_of_the_rules_gives_an_epilogue_the_program_that_stock_gives(
    of_rules: Anchored,
) -> None:
    assert tuner.passes.origins(of_rules.module)["gated"].how == "anchor"
    assert same(of_rules.module["gated"], by_stock(program("gated"), of_rules.trace))
    right(of_rules.module)


def test_a_trace_that_does_not_fit_is_refused_by_both(of_rules: Anchored) -> None:
    """It asks for the blocks of the program, of which there is one more before the product."""
    assert refused_by_stock(program(PROLOGUE), of_rules.trace)
    assert tuner.passes.origins(of_rules.module)[PROLOGUE].how == "none"
    assert "the schedule of plain does not fit" in of_rules.missed[PROLOGUE]
    assert same(of_rules.module[PROLOGUE], program(PROLOGUE))


def test_of_a_template_both_take_epilogues_and_ours_takes_prologues_too(
    of_template: Anchored,
) -> None:
    """Ours makes the template's schedule of the other program; stock has the exported trace."""
    right(module_with("gated", by_stock(program("gated"), of_template.trace)))
    assert refused_by_stock(program(PROLOGUE), of_template.trace)
    for name in ("gated", PROLOGUE):
        assert tuner.passes.origins(of_template.module)[name].how == "anchor"
    right(of_template.module)


def module_with(name: str, function: Any) -> Any:
    from tvm import IRModule

    return IRModule({name: function.with_attr(tvm_compat.GLOBAL_SYMBOL, name)})


@dataclass(frozen=True)
class Known:
    """A source that knows a schedule of one program."""

    task: Task
    candidate: Candidate
    name: str = "known"

    def others(self, _target: str) -> list[tuple[Task, Candidate]]:
        return [(self.task, self.candidate)]


def attempted(known: Known, function: Any, target: str) -> Any:
    """The program that ours would check; None where the schedule does not fit."""
    sources: Any = [known]
    task = task_of(function, target, name="other")
    (attempt,) = Anchors(sources, target).attempts(task)
    return None if isinstance(attempt, str) else attempt[0]


def known_of(function: Any, target: str, pick: Callable[[Task], Candidate]) -> tuple[Known, Any]:
    task = task_of(function, target, name="known")
    candidate = pick(task)
    return Known(task, candidate), realize(task, candidate).trace


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=long) for name in EPILOGUES[:-1]), EPILOGUES[-1]]
)
def test_a_template_gives_epilogues_the_loops_that_stock_makes_of_its_shortened_trace(
    name: str,
) -> None:
    """Shortened by what has no effect, the questions for neighbours among them."""
    known, trace = known_of(program("plain"), TARGET, by_template)
    ours = attempted(known, program(name), TARGET)
    block = f"{ANCHOR}_update"
    assert loops(ours, block) == loops(realize(known.task, known.candidate).mod["main"], block)
    stock = by_stock(program(name), trace.simplified(remove_postproc=False))
    assert loops(ours, block) == loops(stock, block)
    right(module_with(name, ours))
    right(module_with(name, stock))


@pytest.mark.parametrize(
    ("target", "cached"),
    [
        pytest.param(TARGET, True, id="1 core-write cache"),
        pytest.param(TARGET, False, id="1 core-no write cache", marks=long),
        pytest.param(FOUR_CORES, True, id="4 cores-write cache", marks=long),
        pytest.param(FOUR_CORES, False, id="4 cores-no write cache"),
    ],
)
def test_a_dense_layer_s_trace_gives_both_the_same_with_an_epilogue(
    target: str, cached: bool
) -> None:
    def pick(task: Task) -> Candidate:
        return by_rules(task, lambda trace: ("CacheWrite" in trace) == cached)

    known, trace = known_of(program("plain"), target, pick)
    for name in EPILOGUES:
        ours = attempted(known, program(name), target)
        assert same(ours, by_stock(program(name), trace, target))
    right(module_with("biased", attempted(known, program("biased"), target)))


def test_a_trace_of_an_epilogue_gives_both_the_same_with_another_or_none() -> None:
    known, trace = known_of(program("biased_relu"), TARGET, by_rules)
    for name in ("plain", "biased", "gated"):
        ours = attempted(known, program(name), TARGET)
        assert refused_by_stock(program(name), trace) == (ours is None)
        if ours is not None:
            assert same(ours, by_stock(program(name), trace))
            right(module_with(name, ours))


def test_an_epilogue_that_uses_a_value_twice_is_inlined_into_its_last_block_by_both() -> None:
    known, trace = known_of(program("plain"), TARGET, by_rules)
    ours = attempted(known, program("gated"), TARGET)
    names = {str(block.name_hint) for block in tvm_compat.sblocks(ours)}
    assert names.isdisjoint({"T_sigmoid", "T_multiply"})
    assert same(ours, by_stock(program("gated"), trace))
    right(module_with("gated", ours))


def test_on_a_gpu_both_give_the_same_kernel() -> None:
    known, trace = known_of(program("plain", m=64), CUDA, by_rules)
    for name in EPILOGUES:
        ours = attempted(known, program(name, m=64), CUDA)
        assert same(ours, by_stock(program(name, m=64), trace, CUDA))
    assert refused_by_stock(program(PROLOGUE, m=64), trace, CUDA)
    assert attempted(known, program(PROLOGUE, m=64), CUDA) is None


def winograd(then: str = "") -> Any:
    """A convolution as products between transforms."""
    from tvm import te, topi
    from tvm.topi.nn.conv2d import _conv2d_winograd_nhwc_impl

    x, w = te.placeholder((1, 8, 8, 16), name="x"), te.placeholder((3, 3, 16, 16), name="w")
    c = _conv2d_winograd_nhwc_impl(x, w, 1, 1, 1, "float32", 4)
    other = te.placeholder(c.shape, name="other")
    if then == "residual":
        return te.create_prim_func([x, w, other, topi.nn.relu(topi.add(c, other))])
    return te.create_prim_func([x, w, topi.nn.relu(c) if then else c])


def test_of_a_winograd_convolution_knobs_fit_other_epilogues_and_the_rules_traces_do_not() -> None:
    of_rules, of_knobs = (known_of(winograd(), TARGET, pick) for pick in (by_rules, by_template))
    for (known, trace), fits in ((of_rules, False), (of_knobs, True)):
        assert refused_by_stock(winograd("residual"), trace)
        assert (attempted(known, winograd("residual"), TARGET) is not None) == fits


def int8_product(then: str = "") -> Any:
    """A product of bytes, with a requantization after it where one is asked for."""
    from tvm import te, topi

    x, w = te.placeholder((16, 64), "uint8", name="x"), te.placeholder((64, 64), "int8", name="w")
    zero, k = te.placeholder((64,), "int32", name="zero"), te.reduce_axis((0, 64), name="k")
    c = te.compute(
        (16, 64),
        lambda i, j: te.sum(x[i, k].astype("int32") * w[j, k].astype("int32"), axis=k),
        name=ANCHOR,
    )
    if then:
        clipped = topi.clip(topi.subtract(c, zero), -128, 127)
        return te.create_prim_func([x, w, zero, topi.cast(clipped, "int8")])
    return te.create_prim_func([x, w, c])


def test_an_int8_kernel_fits_a_requantized_product_as_knobs() -> None:
    known, trace = known_of(int8_product(), VNNI, by_template)
    ours = attempted(known, int8_product("clipped"), VNNI)
    assert ours is not None
    shortened = trace.simplified(remove_postproc=False)
    block = f"{ANCHOR}_update"
    assert loops(by_stock(int8_product("clipped"), shortened, VNNI), block) == loops(ours, block)
