"""A made-up run with everything in it that a page shows."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tuner.candidate import Candidate, CandidateKind, of_knobs
from tuner.dynamic.dispatch_tree import Leaf, Split
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.generations import rung_of
from tuner.record import Measurement, Predicted, Provenance, Record, Status, Trial
from tuner.report.bench import Bench
from tuner.report.run_report import RunReport, run_report
from tuner.runs.folder import Manifest
from tuner.storage.base import RecordStore, begin_session
from tuner.storage.facts import Defaults, SessionAlive, SessionEnded, Tasks
from tuner.storage.history import Fit, History, Outlook
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.utilisation import SlotSpan

START_S = 1_700_000_000.0
DEVICE = Provenance("runner-1", "a desk", "tvm 1")
MANIFEST = Manifest(
    "model.onnx",
    "00",
    '{"kind":"llvm","num-cores":2}',
    {"seed": 7, "strategy": "evolutionary", "effort": "quick", "max_kernels": None},
    START_S,
    "0.1.0",
)
BENCH = {
    "untuned_ms": 90.0,
    "tuned_ms": 10.0,
    "onnxruntime_ms": 12.0,
    "spread": {"untuned": 0.1, "tuned": 0.02},
    "shape": {},
}


def default_of(name: str) -> Candidate:
    return Candidate(CandidateKind.TRACE, f"default of {name}", "default")


def fill(store: RecordStore, names: Sequence[str], trials: int, seed: int = 0) -> None:
    """Tasks with these names, so many trials of each, re-timings, failures and a history."""
    rng = random.Random(seed)
    tasks = [Task(name, name, f"module of {name}", "{}", 2.0, 1e6) for name in names]
    store.put(Tasks(tasks), Defaults({name: default_of(name).key for name in names}))
    session, now_s = begin_session(store, START_S), START_S
    spans: list[SlotSpan] = []
    for number in range(trials):
        for name in names:
            now_s += 0.5
            candidate = of_knobs({"rows": number}, "kernel:product@1")
            if number == 0:
                candidate = default_of(name)
            latency_s = 1e-3 if number == 0 else rng.uniform(1e-4, 9e-4) / (1 + number / 10)
            measured = Measurement(Status.OK, (latency_s,) * 3)
            if number and rng.random() < 0.2:
                measured = Measurement(Status.BUILD_FAILED, error="no registers left\nat line 3")
            guess = Predicted(rng.random(), 1 + number // 8, latency_s * rng.uniform(0.5, 2))
            store.append_many(
                [
                    (
                        Record(
                            Trial(name, candidate),
                            measured,
                            DEVICE,
                            time_s=now_s,
                            predicted=guess if number else None,
                        ),
                        None,
                    )
                ]
            )
            job = SlotSpan("runner", "runner-1", "busy", now_s - 0.4, now_s, name)
            spans += [job, SlotSpan("builder", "builder-1", "waiting", now_s - 0.4, now_s)]
    for name in names:
        for best in store.scan(name, fastest=2):
            for number in (1, 2, 3):
                again = Measurement(
                    Status.OK, (best.measurement.samples_s[0] * rng.uniform(1, 1.1),)
                )
                trial = Trial(name, best.trial.candidate, (), rung_of(0, number))
                store.append_many([(Record(trial, again, DEVICE, time_s=now_s), None)])
    fits = tuple(Fit(START_S + 10 * n, n, 64 * n, 0.5 + n / 20, 0.2) for n in range(1, 6))
    outlooks = (Outlook(START_S + 20, 160, 0.08), Outlook(START_S + 50, 300, 0.021))
    store.put(History(tuple(spans), fits, outlooks))
    store.put(
        SessionAlive(session, now_s, {"runner": {"busy": 40.0, "no_builds": 9.0, "starting": 1.0}})
    )
    store.put(SessionEnded(session, now_s, "trials"))


def kernel_set() -> KernelSet:
    """Two kernels for eight sizes."""
    kernels = tuple(of_knobs({"rows": n}, "kernel:product@1") for n in (1, 2))
    shapes = tuple(
        ShapeTimes((("n", size),), 1.0, int(size > 40), size * 1e-6, size * 0.9e-6, size != 80)
        for size in range(10, 90, 10)
    )
    tree = Split("n", 40, Leaf(0), Leaf(1))
    return KernelSet(kernels, tree, (1.3, 1.05, 1.0), 1.06, shapes, 0.1, 3)


def sample(
    names: Sequence[str] = ("conv", "dense"),
    trials: int = 30,
    *,
    name: str = "desk",
    seed: int = 0,
    symbolic: bool = False,
    bench: bool = False,
) -> RunReport:
    """All that a page shows of such a run."""
    store = MemoryStore()
    fill(store, names, trials, seed)
    return run_report(
        store,
        MANIFEST,
        name=name,
        place=f"runs/{name}",
        kernel_sets={names[0]: kernel_set()} if symbolic else {},
        bench=Bench(START_S + 9e6, [BENCH]) if bench else None,
    )


def best_in_search(
    names: Sequence[str] = ("conv", "dense"), trials: int = 30, seed: int = 0
) -> dict[str, float]:
    """The best latency, in milliseconds, that the search of such a run measured, by task."""
    store = MemoryStore()
    fill(store, names, trials, seed)
    best = {
        task.name: next(store.scan(task.key, fastest=1)).latency_s or 0.0 for task in store.tasks()
    }
    return {name: latency_s * 1e3 for name, latency_s in best.items()}
