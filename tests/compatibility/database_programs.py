"""Programs that stock MetaSchedule and ours are both asked for, and runs of ours that hold them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tuner
from spaces.ir import tvm_compat
from tests.cluster.app.passes.made_run import made_run
from tuner.candidate import Candidate, Draft
from tuner.task import Task

Array = npt.NDArray[np.float32]

TARGET = '{"kind":"llvm","num-cores":1}'
M, N, K = 16, 32, 24
ANCHOR = "product"
"""The name of the block that all programs have in common."""


def program(name: str, *, m: int = M, block: str = ANCHOR) -> Any:
    """A product of matrices, with what its name says before or after it."""
    from tvm import te, topi

    x, w = te.placeholder((m, K), name="x"), te.placeholder((K, N), name="w")
    bias, other = te.placeholder((N,), name="bias"), te.placeholder((m, N), name="other")
    left = topi.multiply(x, te.const(0.5, "float32")) if name == "scaled_input" else x
    k = te.reduce_axis((0, K), name="k")
    c = te.compute((m, N), lambda i, j: te.sum(left[i, k] * w[k, j], axis=k), name=block)
    made: dict[str, Callable[[], list[Any]]] = {
        "plain": lambda: [c],
        "scaled_input": lambda: [c],
        "relu": lambda: [topi.nn.relu(c)],
        "biased": lambda: [bias, topi.add(c, bias)],
        "biased_relu": lambda: [bias, topi.nn.relu(topi.add(c, bias))],
        "gated": lambda: [other, topi.add(topi.multiply(topi.sigmoid(c), c), other)],
    }
    function = te.create_prim_func([x, w, *made[name]()])
    return function.with_attr(tvm_compat.GLOBAL_SYMBOL, name)


def expected(name: str, arrays: Sequence[Array]) -> Array:
    """What a program gives, by numpy."""
    x, w, *more = arrays
    c = (x * np.float32(0.5) if name == "scaled_input" else x) @ w
    if name.startswith("biased"):
        c = c + more[0]
    if name == "gated":
        c = c / (1 + np.exp(-c)) + more[0]
    return np.asarray(np.maximum(c, 0) if name.endswith("relu") else c)


def module_of(*names: str) -> Any:
    """A module of some programs, each under its name."""
    from tvm import IRModule

    return IRModule({name: program(name) for name in names})


def by_template(task: Task) -> Candidate:
    """The setting of our templates that is estimated to be the fastest."""
    from spaces.design_space.knob_space import KnobSpace
    from spaces.templates.registry import templates_of

    space = min((KnobSpace(task, t) for t in templates_of(task)), key=lambda s: s.least_s)
    return space.describe(space.ranked[0]).candidate


def by_rules(task: Task, fits: Callable[[str], bool] = bool) -> Candidate:
    """A point of stock's own space: a trace of its rules.

    Args:
        fits: which traces will do, by their JSON.
    """
    from spaces.design_space.trace_space import TraceSpace
    from spaces.ir.schedules import InvalidCandidate

    space = TraceSpace(task)
    for seed in range(50):
        try:
            candidate = space.realize_draft(Draft(task.key, seed, seed)).candidate
        except InvalidCandidate:
            continue
        if fits(candidate.payload):
            return candidate
    raise AssertionError("no valid candidate in 50")


def run_of(
    folder: Path,
    *names: str,
    faster: Callable[[Task], Candidate | None] = by_template,
    target: str = TARGET,
) -> Path:
    """A run folder of ours with the winners of some programs, which nobody measured."""
    text = (
        "def network():\n"
        "    from tests.compatibility.database_programs import module_of\n"
        f"    return module_of(*{names!r})\n"
    )
    folder.mkdir(parents=True, exist_ok=True)
    return made_run(folder, text, target, faster)


def bare(function: Any) -> Any:
    """A scheduled program as it is compiled: without its symbol, where its schedule came from, and
    what is said of packing, which a database keeps as 1 for true."""
    from tvm import IRModule

    from spaces.codegen.prepack import pack_weights

    (_, packed), *_ = tvm_compat.prim_funcs(pack_weights(IRModule({"main": function})))
    for name in ("tuner.origin", tvm_compat.IS_SCHEDULED, tvm_compat.NO_ALIAS):
        packed = packed.without_attr(name)
    return packed.with_attr(tvm_compat.GLOBAL_SYMBOL, "main")


def same(one: Any, other: Any) -> bool:
    """Whether two scheduled programs are the same code."""
    from tvm_ffi import structural_equal

    return bool(structural_equal(bare(one), bare(other)))


def right(module: Any) -> None:
    """Assert that each program of a module gives what numpy says."""
    import tvm

    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    built = tvm.compile(module, target=target, tir_pipeline=tuner.tir_pipeline(target))
    rng = np.random.default_rng(0)
    for name, function in tvm_compat.prim_funcs(module):
        shapes: Any = [tvm_compat.param_shape(param) for param in function.params]
        arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        built[name](*tensors)
        want = expected(name, arrays[:-1])
        np.testing.assert_allclose(tensors[-1].numpy(), want, rtol=1e-4, atol=1e-4)


def meta_schedule() -> Any:
    """Stock MetaSchedule, without the intrinsics that take it a quarter of a minute to read."""
    from spaces.intrinsics.registration import stub_intrinsics

    stub_intrinsics()
    from tvm.s_tir import meta_schedule

    return meta_schedule


def stock_target(target: str = TARGET) -> Any:
    from spaces.targets.target import parse_target

    return parse_target(target)


def workload(name: str = "plain") -> Any:
    """A program as stock's databases know it: by its own symbol."""
    return tvm_compat.normalize(program(name), symbol=None)


def tiled(schedule: Any, width: int) -> None:
    """Schedule the product by hand."""
    _, j, _ = schedule.get_loops(schedule.get_sblock(ANCHOR))
    schedule.vectorize(schedule.split(j, [None, width])[1])


def commit(
    database: Any, width: int, run_secs: Sequence[float] | None, *, name: str = "plain"
) -> None:
    """Write a record of a program into a database of stock's."""
    from tvm.s_tir import Schedule

    stock, known = meta_schedule(), workload(name)
    schedule = Schedule(known)
    tiled(schedule, width)
    described = stock.arg_info.ArgInfo.from_prim_func(known["main"])
    database.commit_tuning_record(
        stock.database.TuningRecord(
            schedule.trace, database.commit_workload(known), run_secs, stock_target(), described
        )
    )


def by_stock(module: Any, database: Any) -> Any:
    """What stock's pass makes of a module with a database, a folder or an object."""
    from tvm.relax.transform import MetaScheduleApplyDatabase

    meta_schedule()
    if isinstance(database, Path):
        with stock_target():
            return MetaScheduleApplyDatabase(str(database))(module)
    with stock_target(), database:
        return MetaScheduleApplyDatabase()(module)


def by_ours(module: Any, *sources: Any, anchor: bool = False) -> Any:
    """What our pass makes of a module with some sources."""
    best: Any = tuner.passes.ApplyBest(*sources, target=TARGET, anchor=anchor)
    return best(module)


def python_database(inner: Any, rank: int | None) -> Any:
    """A database in Python, which may answer with another record than the fastest."""
    from tvm.ir.utils import derived_object

    stock = meta_schedule().database
    base: Any = stock.PyDatabase

    class Kept(base):  # type: ignore[misc]
        def has_workload(self, mod: Any) -> Any:
            return inner.has_workload(mod)

        def commit_workload(self, mod: Any) -> Any:
            return inner.commit_workload(mod)

        def commit_tuning_record(self, record: Any) -> None:
            inner.commit_tuning_record(record)

        def get_top_k(self, known: Any, top_k: int) -> Any:
            return inner.get_top_k(known, top_k)

        def get_all_tuning_records(self) -> Any:
            return inner.get_all_tuning_records()

        def __len__(self) -> int:
            return len(inner)

    class Ranked(Kept):
        def query_tuning_record(self, mod: Any, target: Any, workload_name: Any = None) -> Any:
            if not inner.has_workload(mod):
                return None
            return inner.get_top_k(inner.commit_workload(mod), 9)[rank]

        def query_schedule(self, mod: Any, target: Any, workload_name: Any = None) -> Any:
            from tvm.s_tir import Schedule

            record = self.query_tuning_record(mod, target, workload_name)
            if record is None:
                return None
            schedule = Schedule(record.workload.mod)
            record.trace.apply_to_schedule(schedule, remove_postproc=False)
            return schedule

        def query_ir_module(self, mod: Any, target: Any, workload_name: Any = None) -> Any:
            schedule = self.query_schedule(mod, target, workload_name)
            return None if schedule is None else schedule.mod

    return derived_object(Kept if rank is None else Ranked)()
