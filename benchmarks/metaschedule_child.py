"""MetaSchedule at work, in a process of its own: `python -m benchmarks.metaschedule_child ORDER`.

ORDER is the JSON of an `Order`. What happens is written as it happens to `events.jsonl` in the
order's folder, one object a line, so that a run that is cut short leaves what it knew.

Builder and runner are MetaSchedule's own, each inside one that only takes down times. The runner
is handed its programs one by one instead of in a list, which it would go through in just that way.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.intrinsics_import import import_intrinsics
from benchmarks.suites import workload

EVENTS = "events.jsonl"
DATABASE = "database"


@dataclass(frozen=True, slots=True)
class Order:
    """What to tune, and how.

    Attributes:
        folder: gets the events and the database.
        workers: processes that build, and threads of the search.
        as_shipped: leave builder, runner and evaluator at their defaults.
        samples: `repeat` of the evaluator.
        sample_ms: its `min_repeat_ms`.
        module: the program as TVM's JSON, where it is none of `benchmarks.workloads`.
    """

    folder: str
    workload: str
    args: dict[str, int]
    target: str
    trials: int
    seed: int
    workers: int
    as_shipped: bool
    timeout_s: float
    samples: int
    sample_ms: int
    module: str = ""

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Order:
        """What `to_json` wrote."""
        return Order(**json.loads(text))


class _Diary:
    """Events, on disk as soon as they happened."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def note(self, kind: str, **facts: Any) -> None:
        self._file.write(json.dumps({"kind": kind, "time_s": time.time(), **facts}) + "\n")


def run(order: Order) -> None:
    """Tune."""
    folder = Path(order.folder)
    diary = _Diary(folder / EVENTS)
    if not order.as_shipped:
        import_intrinsics()
    from tvm.s_tir import meta_schedule as ms
    from tvm.target import Target

    builder, runner = _builder(order, diary), _runner(order, diary)
    diary.note("begun")
    ms.tune_tir(
        _program(order),
        Target(json.loads(order.target)),
        str(folder / DATABASE),
        order.trials,
        builder=builder,
        runner=runner,
        num_tuning_cores=order.workers,
        seed=order.seed + 1,  # it knows none below 1
    )
    diary.note("ended")


def _program(order: Order) -> Any:
    import tvm

    if order.module:
        return tvm.ir.load_json(order.module)["main"]
    return workload(order.workload, order.args.items()).prim_func()


def _builder(order: Order, diary: _Diary) -> Any:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import LocalBuilder, PyBuilder

    settings: dict[str, Any] = {"max_workers": order.workers}
    if not order.as_shipped:
        settings |= {"timeout_sec": order.timeout_s, "initializer": import_intrinsics}

    @derived_object
    class TimedBuilder(PyBuilder):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = LocalBuilder(**settings)

        def build(self, build_inputs: Any) -> Any:
            results = self.inner.build(list(build_inputs))
            errors = [str(r.error_msg) for r in results if r.error_msg is not None]
            diary.note("built", programs=len(results), failed=len(errors), error=_first(errors))
            return results

    return TimedBuilder()


def _runner(order: Order, diary: _Diary) -> Any:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner, PyRunner

    settings: dict[str, Any] = {}
    if not order.as_shipped:
        evaluator = EvaluatorConfig(number=1, repeat=order.samples, min_repeat_ms=order.sample_ms)
        settings = {"timeout_sec": order.timeout_s, "evaluator_config": evaluator}

    @derived_object
    class TimedRunner(PyRunner):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = LocalRunner(**settings)

        def run(self, runner_inputs: Any) -> Any:
            futures = []
            for one in runner_inputs:
                (future,) = self.inner.run([one])
                result = future.result()
                seconds = [float(s) for s in result.run_secs or ()]
                error = _first([str(result.error_msg)] if result.error_msg is not None else [])
                diary.note("ran", samples_s=seconds, error=error)
                futures.append(future)
            return futures

    return TimedRunner()


def _first(errors: list[str]) -> str:
    """The last line of the first error, which ends a traceback."""
    lines = [line.strip() for line in errors[0].splitlines() if line.strip()] if errors else []
    return lines[-1][:200] if lines else ""


if __name__ == "__main__":
    run(Order.from_json(sys.argv[1]))
