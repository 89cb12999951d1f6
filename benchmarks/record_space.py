"""Record what random candidates of a GEMM and a convolution look like, and how fast they are.

    python -m benchmarks.record_space [--candidates 300] [--rounds 5] [--cores 1] [gemm] [conv]

Writes `tests/golden/cost-model-TASK.npz`, from which the tests judge the cost model without
timing anything. Candidates are what the tuner proposes: random points of TVM's rules, their
post-processing included. All are built first and then timed in rounds, each round in another
order; a candidate's latency is its least over the rounds, so a busy moment costs nothing. Prints
one JSON object: for each task the share of pairs that one round orders as all of them do. Where
that is not close to 1 the machine was busy, and the recording is worth nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
TASKS = ("gemm", "conv")

_PAYLOADS = 6
"""Candidates kept whole, to check that features of today are those that were recorded."""
_HOPELESS = 20.0
"""Times the best: slower candidates are timed in the first rounds only."""


def program(name: str) -> Any:
    """The PrimFunc to record: a GEMM of 512, or a 3x3 convolution with padding and ReLU."""
    from tvm import te, topi

    if name == "gemm":
        a = te.placeholder((512, 512), name="A")
        b = te.placeholder((512, 512), name="B")
        return te.create_prim_func([a, b, topi.nn.matmul(a, b)])
    data = te.placeholder((1, 32, 28, 28), name="data")
    weight = te.placeholder((64, 32, 3, 3), name="weight")
    convolved = topi.nn.conv2d_nchw(data, weight, 1, 1, 1)
    return te.create_prim_func([data, weight, topi.nn.relu(convolved)])


def sample(task: Any, number: int, rng: random.Random) -> list[Any]:
    """Valid points of a task, no two with the same program."""
    from spaces.realize import InvalidCandidate
    from spaces.trace_space import TraceSpace
    from tuner.candidate import Draft

    space = TraceSpace(task)
    points: dict[str, Any] = {}
    drawn = 0
    while len(points) < number:
        drawn += 1
        try:
            point = space.realize_draft(Draft(task.key, drawn, rng.randrange(2**31)))
        except InvalidCandidate:
            continue
        points.setdefault(point.code_hash, point)
    return list(points.values())


def measure(
    points: Sequence[Any], target: Any, rounds: int, rng: random.Random
) -> npt.NDArray[np.float32]:
    """Seconds of each point in each round; infinite where it was left out."""
    import tvm

    built = [tvm.compile(point.schedule.mod, target=target).mod for point in points]
    arguments = _arguments(points[0].schedule.mod["main"])
    seconds = np.full((rounds, len(points)), np.inf, dtype=np.float32)
    for i in range(rounds):
        for j in rng.sample(range(len(points)), len(points)):
            known, best = seconds[:, j].min(), seconds.min()
            if i > 1 and known > _HOPELESS * best:
                continue
            long = {"min_repeat_ms": 3} if i > 0 and known < _HOPELESS * best else {}
            timer = built[j].time_evaluator("main", tvm.cpu(), number=1, repeat=3, **long)
            seconds[i, j] = min(timer(*arguments).results)
    return seconds


def _arguments(function: Any) -> list[Any]:
    import tvm

    rng = np.random.default_rng(0)
    shapes = [[int(size) for size in param.shape] for param in function.params]
    return [tvm.runtime.tensor(rng.standard_normal(s).astype(np.float32)) for s in shapes]


def agreement(seconds: npt.NDArray[np.float32]) -> float:
    """The least share of pairs that a timed round orders as the minimum over all does."""
    from tuner.cost_model import pairwise_accuracy

    least = seconds.min(axis=0)
    found = []
    for row in seconds[1:]:
        timed = np.isfinite(row)
        zeros = np.zeros(int(timed.sum()), dtype=np.int32)
        found.append(pairwise_accuracy(-row[timed], least[timed], zeros) or 0.0)
    return min(found)


def record(name: str, *, candidates: int, rounds: int, cores: int, seed: int) -> float:
    """Record one task and write its file; returns how far the rounds agree."""
    from spaces.extract import task_of
    from spaces.features import FeatureExtractor
    from spaces.target import parse_target, resolve_target

    rng = random.Random(seed)
    target = resolve_target("llvm", cores=cores)
    task = task_of(program(name), target, name=name)
    points = sample(task, candidates, rng)
    rows = FeatureExtractor(target).extract(task.module, [p.schedule for p in points])
    seconds = measure(points, parse_target(target), rounds, rng)
    kept = [p.candidate for p in points[:_PAYLOADS]]
    np.savez_compressed(
        GOLDEN / f"cost-model-{name}.npz",
        features=np.asarray(rows, dtype=np.float32),
        seconds=seconds,
        module=task.module,
        target=target,
        space=kept[0].space,
        payloads=[c.payload for c in kept],
    )
    return agreement(seconds)


def main(argv: Sequence[str]) -> int:
    """Record the tasks that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], default=list(TASKS))
    parser.add_argument("--candidates", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    os.environ["TVM_NUM_THREADS"] = str(options.cores)  # read when TVM makes its thread pool
    agreed = {
        name: record(
            name,
            candidates=options.candidates,
            rounds=options.rounds,
            cores=options.cores,
            seed=options.seed,
        )
        for name in options.tasks
    }
    print(json.dumps({"agreement": agreed}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
