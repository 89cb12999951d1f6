"""A library, loaded as the tour says, runs with the threads it was tuned for."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spaces.codegen.executable import compile_module, export_library
from spaces.codegen.library_threads import SOURCE, compile_c
from spaces.deploy.apply import apply_best
from spaces.design_space.knob_space import KnobSpace
from spaces.frontends.model import load_model
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.targets.cores import count_allowed_cores
from spaces.targets.target import resolve_target
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import contraction_templates
from tests.contracts.programs import write_down
from tuner.candidate import Candidate
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet
from tuner.request.model_spec import ModelSpec
from tuner.task import Task

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.skipif(sys.platform != "linux", reason="TVM binds threads on Linux"),
]

ROOT = Path(__file__).parents[3]
GEMM, MODEL = (
    block
    for block in re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "tour.md").read_text(), re.M | re.S
    )
    if "load_module" in block
)
"""What the tour tells users of a library to run, to the letter."""
ALLOWED = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else [0]
TUNED = min(2, count_allowed_cores())
"""What the libraries are tuned for; less where this process has fewer CPUs."""

DRIVER = '''
import json, os, signal, sys, threading

sys.modules["torch"] = None  # TVM would import it
import tvm  # the code that is run here imports it again; its threads start with the first kernel

def threads():
    """CPUs that each thread of this process may run on."""
    return {t: sorted(os.sched_getaffinity(int(t))) for t in os.listdir("/proc/self/task")}

def use(code, where):
    before, free = threads(), sorted(os.sched_getaffinity(0))
    if where == "in a thread":
        worker = threading.Thread(target=lambda: use(code, ""))
        worker.start()
        return worker.join()
    given = {}
    exec(code, given)
    if where == "in a fork":
        if os.fork() == 0:
            signal.alarm(60)
            use(code, "")
            os._exit(0)
        return os.wait()
    added = {t: cpus for t, cpus in threads().items() if t not in before}
    facts = {
        "threads": tvm.runtime.num_threads(),
        "workers": sorted(added.values()),
        "free": sorted(os.sched_getaffinity(0)) == free,
        "sum": float(given["c" if "c" in given else "output"].numpy().sum()),
        "modules": [m for m in ("spaces", "tuner") if m in sys.modules],
    }
    print(json.dumps(facts), flush=True)

for order in json.loads(sys.argv[1]):
    print(json.dumps(order["name"]), flush=True)
    if os.fork() == 0:  # a new process: nothing has run a kernel yet
        os.environ.update(order["env"])
        os.sched_setaffinity(0, order["cpus"])
        use(order["code"], order["where"])
        os._exit(0)
    os.wait()
'''


def scenario(
    name: str, code: str, *, cpus: Sequence[int] = ALLOWED, where: str = "", **env: str
) -> dict[str, Any]:
    return {"name": name, "code": code, "cpus": list(cpus), "where": where, "env": env}


def library(name: str, code: str = GEMM) -> str:
    return code.replace('"gemm.so"', f'"{name}"')


SCENARIOS = [
    scenario("gemm", GEMM),
    scenario("dynamic", library("dynamic.so")),
    scenario("model", MODEL),
    scenario("archive", library("gemm.tar")),
    scenario("model, one told", MODEL, TVM_NUM_THREADS="1"),
    scenario("one told", GEMM, TVM_NUM_THREADS="1"),
    scenario("one told to OpenMP", GEMM, OMP_NUM_THREADS="1"),
    scenario("three told", GEMM, TVM_NUM_THREADS="3", OMP_NUM_THREADS="1"),
    scenario("bound", GEMM, TVM_BIND_THREADS="1"),
    scenario("one CPU", GEMM, cpus=ALLOWED[-1:]),
    scenario("in a thread", GEMM, where="in a thread"),
    scenario("in a fork", GEMM, where="in a fork"),
    scenario("two libraries", f"{GEMM}\n{MODEL}\ndel output"),
    scenario("one tuned for fewer first", f"{library('single.so')}\n{GEMM}"),
]


def parallel_kernel(task: Task) -> Candidate:
    (template, *_) = contraction_templates(task, match_contraction(task))
    first = {name: values[0] for name, values in template.choices.items()}
    knobs = {**first, "rows": 4, "row_block": 2, "lanes": 8, "parallel": 1}
    return write_down(KnobSpace(task, template), knobs).candidate


def write_gemm(target: str, *paths: Path, dims: tuple[Any, ...] = ()) -> None:
    sizes = (("n", 64), ("k", 80)) if dims else (("m", 96), ("n", 64), ("k", 80))
    spec = ModelSpec(f"{ROOT}/examples/gemm.py:gemm", args=sizes, dims=dims)
    model = load_model(spec)
    lowered = lower(model.module, target)
    (task,) = extract(lowered, target, shapes=model.shapes)
    kernel = parallel_kernel(task)
    if dims:
        chosen = KernelSet((kernel,), Leaf(0), (1.0,), 1.0, (), None, 0)
        applied = apply_best({}, target, {task.key: (task, chosen)})(lowered)
    else:
        applied = apply_best({task.key: kernel}, target)(lowered)
    for path in paths:
        export_library(compile_module(applied, target), path)


def write_model(target: str, path: Path) -> None:
    """A graph of one operator, on an image as the README has it."""
    from tvm import relax
    from tvm.ir import IRModule
    from tvm.s_tir import Schedule

    builder = relax.BlockBuilder()
    image = relax.Var("image", relax.TensorType((1, 3, 224, 224), "float32"))
    with builder.function("main", [image]):
        builder.emit_func_output(builder.emit(relax.op.add(image, image)))
    lowered = lower(builder.get(), target)
    ((name, function),) = tvm_compat.prim_funcs(lowered)
    schedule = Schedule(IRModule({"main": function}))
    (block,) = tvm_compat.stage_blocks(schedule)
    schedule.parallel(schedule.fuse(*schedule.get_loops(block)[:3]))
    body = tvm_compat.with_attrs_of(schedule.mod["main"], function)
    lowered.update_func(lowered.get_global_var(name), body.with_attr(tvm_compat.IS_SCHEDULED, True))
    export_library(compile_module(lowered, target), path)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each scenario saw in a process of its own, by its name; "said" is standard error."""
    folder = tmp_path_factory.mktemp("libraries")
    two, one = resolve_target("llvm", cores=2), resolve_target("llvm", cores=1)
    write_gemm(two, folder / "gemm.so", folder / "gemm.tar")
    write_gemm(two, folder / "dynamic.so", dims=(("M", (16, 96)),))
    write_gemm(one, folder / "single.so")
    write_model(two, folder / "model.so")
    env = {k: v for k, v in os.environ.items() if "THREADS" not in k and k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", DRIVER, json.dumps(SCENARIOS)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = {"said": {"text": done.stderr}}
    for line in map(json.loads, done.stdout.splitlines()):
        if isinstance(line, str):
            name = line
        else:
            found[name] = line
    assert set(found) == {"said", *(s["name"] for s in SCENARIOS)}, done.stderr
    return found


@pytest.mark.parametrize("name", ["gemm", "model", "dynamic", "archive", "two libraries"])
def test_the_readmes_code_runs_with_the_threads_that_it_was_tuned_for(
    seen: dict[str, dict[str, Any]], name: str
) -> None:
    facts = seen[name]
    assert facts["threads"] == TUNED
    assert len(facts["workers"]) == TUNED - 1
    assert facts["modules"] == []


@pytest.mark.parametrize("name", ["gemm", "model", "dynamic", "three told", "one CPU"])
def test_no_thread_is_bound_to_a_cpu_that_another_may_take(
    seen: dict[str, dict[str, Any]], name: str
) -> None:
    """Bound, a worker at times shares its core with the caller, and both take twice as long."""
    (order,) = (s for s in SCENARIOS if s["name"] == name)
    assert all(cpus == order["cpus"] for cpus in seen[name]["workers"])


def test_the_callers_own_thread_runs_where_it_could_before(
    seen: dict[str, dict[str, Any]],
) -> None:
    changed = [name for name, facts in seen.items() if not facts.get("free", True)]
    assert changed in ([], ["bound"])


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        ("one told", 1),
        ("model, one told", 1),
        ("one told to OpenMP", 1),
        ("three told", 3),
        ("one CPU", 1),
        ("bound", TUNED),
        ("in a thread", TUNED),
    ],
)
def test_what_the_user_and_the_system_say_is_respected(
    seen: dict[str, dict[str, Any]], name: str, threads: int
) -> None:
    assert seen[name]["threads"] == threads
    assert len(seen[name]["workers"]) == threads - 1


def test_bound_threads_have_a_cpu_each_of_those_that_the_process_may_use(
    seen: dict[str, dict[str, Any]],
) -> None:
    assert seen["bound"]["workers"] == [[cpu] for cpu in ALLOWED[1:TUNED]]


def test_a_forked_process_does_without_the_threads_that_it_has_not(
    seen: dict[str, dict[str, Any]],
) -> None:
    assert seen["in a fork"]["workers"] == []


def test_results_are_right_with_any_number_of_threads(seen: dict[str, dict[str, Any]]) -> None:
    products = {f["sum"] for name, f in seen.items() if name != "said" and "model" not in name}
    assert products == {96 * 64 * 80.0}
    assert seen["model"]["sum"] == seen["model, one told"]["sum"] == 2 * 3 * 224 * 224


@pytest.mark.skipif(len(ALLOWED) < 2, reason="takes two CPUs")
def test_a_pool_that_is_too_small_and_cannot_grow_is_told_once(
    seen: dict[str, dict[str, Any]],
) -> None:
    assert seen["one tuned for fewer first"]["threads"] == 1
    said = seen["said"]["text"]
    assert said.count("a tuned library runs with 1 of 2 threads") == 1
    assert "TVM_NUM_THREADS=2" in said


@pytest.fixture(scope="module")
def threads_for(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The decision alone: of threads tuned for, CPUs and the folder of control groups."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text(
        f'#include "{SOURCE}"\n'
        "int probe(int tuned, int cpus, const char *cgroup) {\n"
        "  return threads_for(tuned, cpus, cgroup);\n"
        "}\n"
    )
    compile_c(folder / "probe.c", folder / "probe.so", "-shared")
    return ctypes.CDLL(str(folder / "probe.so")).probe


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, [4, 8, 1]),
        ({"cpu.max": "max 100000\n"}, [4, 8, 1]),
        ({"cpu.max": "250000 100000\n"}, [2, 2, 1]),
        ({"cpu.max": "50000 100000\n"}, [1, 1, 1]),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, [3, 3, 1]),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, [4, 8, 1]),
    ],
    ids=["no group", "no quota", "quota", "half a CPU", "version 1", "version 1, no quota"],
)
def test_no_more_threads_run_than_a_quota_allows(
    tmp_path: Path, threads_for: Any, files: dict[str, str], expected: list[int]
) -> None:
    """Tuned for 4 threads, for 16, on 8 CPUs, and for 4 on one CPU."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    group = str(tmp_path).encode()
    got = [threads_for(tuned, cpus, group) for tuned, cpus in ((4, 8), (16, 8), (4, 1))]
    assert got == expected
