"""What is measured is what is delivered: one code, whichever way a schedule is compiled."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.app.driver import export
from spaces.check.reference import reference
from spaces.codegen.artifact import compile_kernel
from spaces.codegen.executable import compile_module
from spaces.codegen.prepack import packs
from spaces.deploy.bench import Side
from spaces.design_space.realize import realize
from spaces.design_space.task_space import TaskSpace
from spaces.frontends.model import Model, load_model
from spaces.frontends.model_copy import save_model_copy
from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate, task_module
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.targets.cores import thread_variables
from spaces.targets.target import parse_target, resolve_target
from tuner.candidate import Candidate, Draft
from tuner.record import Measurement, Record, Status, Trial
from tuner.request.model_spec import ModelSpec
from tuner.runs.folder import Manifest, open_run
from tuner.storage.facts import Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task

pytestmark = pytest.mark.tvm

REFERENCE = Path(__file__).resolve().parents[4] / "docs" / "reference.md"
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

NET = """
import numpy as np
from tvm import relax


def net():
    random = np.random.default_rng(0)
    weight = relax.const(random.standard_normal((48, 70)).astype("float32"))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((40, 48), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            curved = builder.emit(relax.op.nn.gelu(x))
            product = builder.emit(relax.op.matmul(curved, weight))
            out = builder.emit_output(relax.op.nn.softmax(product))
        builder.emit_func_output(out)
    return builder.get()
"""

SUMS = """
from tvm import te


def sums():
    x = te.placeholder((40, 96), name="x")
    k = te.reduce_axis((0, 96), "k")
    out = te.compute((40,), lambda i: te.sum(x[i, k], k), name="out")
    program = te.create_prim_func([x, out]).without_attr("tirx.noalias")
    return program.with_attr("global_symbol", "sums")
"""


@dataclass(frozen=True)
class Run:
    """A finished run, without a search."""

    folder: Path
    target: str
    lowered: Any
    best: dict[str, tuple[Task, Candidate]]
    """By name of the program."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A softmax, a GELU, and a product with packed weights, each with a template's schedule."""
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "net.py").write_text(NET)
    model = load_model(ModelSpec(f"{folder / 'net.py'}:net"))
    return finished(folder / "run", model)


def finished(folder: Path, model: Model) -> Run:
    target = resolve_target("llvm", cores=1)
    manifest = Manifest(model.name, model.content_hash, target)
    opened, _ = open_run(folder, manifest)
    save_model_copy(model, opened.model_dir)
    lowered = lower(model.module, target)
    best = {task.name: (task, scheduled(task)) for task in extract(lowered, target)}
    with closing(SqliteStore(opened.store)) as store:
        store.put(Tasks([task for task, _ in best.values()]))
        for task, candidate in best.values():
            store.append_many(
                [(Record(Trial(task.key, candidate), Measurement(Status.OK, (1e-3,))), None)]
            )
    return Run(folder, target, lowered, best)


def scheduled(task: Task) -> Candidate:
    """A schedule as the search finds them: the first of a template, that packs constants if any."""
    space, constants = (
        TaskSpace(task),
        tvm_compat.attribute(task_module(task.module)["main"], tvm_compat.LAYOUT_FREE),
    )
    for seed in range(50):
        try:
            point = space.realize_draft(Draft(task.key, seed, seed))
            packed = packs(realize(task, point.candidate).mod["main"])
        except InvalidCandidate:
            continue
        if point.candidate.space.startswith("kernel:") and packed == bool(constants):
            return point.candidate
    raise AssertionError(f"no such schedule of {task.name} in 50")


@pytest.fixture(autouse=True)
def same_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`bench` and the documents' code set the variables of threads, for these tests alone."""
    for variable in thread_variables(1):
        monkeypatch.setenv(variable, "1")


def recipe(run: Run, tmp_path: Path) -> Any:
    """What somebody has who copied the code out of the reference."""
    (code,) = [c for c in _PYTHON.findall(REFERENCE.read_text()) if "ApplyDatabase" in c]
    export.export_database(run.folder, tmp_path / "db")
    for shown, real in (("runs/mine", run.folder), ("OUT_DIR", tmp_path / "db")):
        assert f'"{shown}"' in code
        code = code.replace(f'"{shown}"', json.dumps(str(real)))
    known: dict[str, Any] = {}
    exec(compile(code, str(REFERENCE), "exec"), known)
    return known["library"]


_FUNCTION = re.compile(r"^define [^@\n]*@([\w.]+)(\([^\n]*\n.*?)^\}", re.MULTILINE | re.DOTALL)
_NUMBERS = re.compile(
    r"^ *#dbg_.*\n|,? ![\w.]+ !\d+|(?<=[\w)]) #\d+|(?<=_lambda)\.\d+", re.MULTILINE
)
"""What a module numbers through, and what only a debugger reads."""


_ASKS_FOR_THREADS = re.compile(r"^.*call i32 @tuner_use_threads\(.*\n", re.MULTILINE)
"""What a kernel of an exported library begins with, and of no other one."""
_UNNAMED = re.compile(r"%(\d+)\b")


def code(library: Any) -> dict[str, str]:
    """LLVM's code of each function of a library, by name, as it goes to the assembler."""
    module = getattr(library, "mod", library)
    sources = [m.inspect_source("ll") for m in (module, *module.imports) if m.kind == "llvm"]
    return {name: plain(text) for source in sources for name, text in _FUNCTION.findall(source)}


def plain(function: str) -> str:
    """A function's code without its call for threads, its unnamed values numbered from 0."""
    kept = _ASKS_FOR_THREADS.sub("", function)
    numbers: dict[str, str] = {}
    return _UNNAMED.sub(lambda m: numbers.setdefault(m[1], f"%{len(numbers)}"), kept)


def computed_by(functions: dict[str, str], entry: str) -> set[str]:
    """The code that a program computes with: its own, and what its threads run."""
    lambdas = {n for n in functions if n.startswith("__tvm_parallel_lambda")}
    own = {f"{entry}_compute_"} | {n for n in lambdas if f"@{n}," in functions[f"{entry}_compute_"]}
    return {_NUMBERS.sub("", functions[name]) for name in own}


def test_who_applies_a_database_as_shown_gets_the_code_of_an_exported_library(
    run: Run, tmp_path: Path
) -> None:
    exported = code(exported_library(run))
    assert {"gelu_compute_", "softmax_compute_", "matmul_prepacked_compute_"} <= set(exported)
    assert code(recipe(run, tmp_path)) == exported


def test_an_exported_library_has_the_code_that_builders_make(run: Run) -> None:
    check_builder(run)


def check_builder(run: Run) -> None:
    exported = code(exported_library(run))
    for name, (task, candidate) in run.best.items():
        measured, packing = compile_kernel(realize(task, candidate).mod, parse_target(run.target))
        delivered = name if packing is None else f"{name}_prepacked"
        assert computed_by(code(measured), "main") == computed_by(exported, delivered), name


def exported_library(run: Run) -> Any:
    return compile_module(export._open(run.folder).tuned(), run.target).library


def test_a_program_that_promises_nothing_of_its_tensors_is_delivered_as_it_was_measured(
    tmp_path: Path,
) -> None:
    """Kernels are timed on tensors of their own, and LLVM knows."""
    (tmp_path / "sums.py").write_text(SUMS)
    model = load_model(ModelSpec(f"{tmp_path / 'sums.py'}:sums"))
    assert not any(
        tvm_compat.attribute(f, tvm_compat.NO_ALIAS) for _, f in tvm_compat.prim_funcs(model.module)
    )
    run = finished(tmp_path / "run", model)
    check_builder(run)
    assert code(recipe(run, tmp_path)) == code(exported_library(run))


def test_what_results_are_judged_by_goes_through_none_of_the_passes(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spaces.deploy.bench.take_rounds", take_one_sample)
    monkeypatch.setattr("spaces.passes.cpu_passes.CPU_PASSES", (off_by_one,))
    assert export.bench_here(run.folder)["max_abs_err"] > 0.5
    task, _ = run.best["softmax"]
    for case in reference(task_module(task.module), "seed").cases:
        np.testing.assert_allclose(case.outputs[1].sum(-1), 1, rtol=1e-5)


def off_by_one(function: Any) -> Any:
    """A pass with a fault: what a program stores is one more than it should be."""
    import tvm
    from tvm_ffi import structural_mutate

    def store(node: Any, _mutator: Any) -> Any:
        more = node.value + tvm.tirx.const(1, str(node.value.ty.dtype))
        return tvm.tirx.BufferStore(node.buffer, more, node.indices)

    body = structural_mutate(function.body, [(tvm.tirx.BufferStore, store)])
    return function.with_body(body)


def take_one_sample(sides: Sequence[Side], _rounds: int, *, budget_s: float) -> None:
    for side in sides:
        side.samples_s.append(1e-3)
