"""Runners, stock's and ours: good kernels get seconds, bad ones a reason, the next a sound process.

Stock times whatever returns; ours times only what computes what the program says.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.run_child import RunChild
from actors.runner import Runner
from tests.compatibility import worker_programs as programs
from tuner.effort import Timing
from tuner.layers import Layers
from tuner.record import Measurement, Status
from tuner.source import Source

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

TIMING = Timing(sample_s=0.001, total_s=0.004, min_samples=3, max_samples=5)
REPEATS = 3
ALLOCATIONS = 2
HANG_S = 1.0
KERNELS = ("doubled", "squared", "raising", "crashing", "shifted", "unending")

TIMER = Source(
    "timer.py",
    """
import os

class Timer:
    def time(self, module, arguments, device, timing, cutoff_s):
        if arguments[0].shape[0] != 8:
            raise ValueError("not in the mood")
        module["main"](*arguments)
        return [float(os.getpid())] * 3
""",
    "Timer",
)
"""A user's runner: each sample is the number of its process. It raises at another size."""


@pytest.fixture(scope="module")
def paths() -> Iterator[dict[str, str]]:
    """What stock's builder made of the kernels."""
    made = {name: programs.stock_artifact(name) for name in KERNELS}
    yield made
    for path in made.values():
        shutil.rmtree(Path(path).parent)


@pytest.fixture(scope="module")
def stock(paths: dict[str, str]) -> dict[str, Any]:
    """What stock's runner says of the kernels, in one batch."""
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner

    config = EvaluatorConfig(number=1, repeat=REPEATS, min_repeat_ms=0)
    runner = LocalRunner(HANG_S, config, alloc_repeat=ALLOCATIONS)
    futures = runner.run([programs.runner_input(paths[name]) for name in KERNELS])
    runner.pool.shutdown()
    assert all(future.done() for future in futures)
    return dict(zip(KERNELS, [future.result() for future in futures], strict=True))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measurement]:
    """What our runner says of kernels for the task "doubled", with a user's timing."""
    folder = tmp_path_factory.mktemp("ours")
    layers = Layers(runner=TIMER)
    runner = Runner(target=programs.TARGET, log_dir=folder, scratch=folder, layers=layers)
    task, found = programs.task("doubled"), dict[str, Measurement]()
    with closing(runner):
        for what, kernel in (
            ("good", "doubled"),
            ("again", "doubled"),
            ("wrong", "squared"),
            ("after wrong", "doubled"),
            ("crashing", "crashing"),
            ("unending", "unending"),
        ):
            deadline_s = 0.5 if what == "unending" else 60.0
            assert runner.learn(task, (), 60.0).error == ""
            artifact = programs.our_artifact(kernel)
            found[what] = runner.run(
                task, artifact, timing=TIMING, cutoff_s=None, deadline_s=deadline_s
            )
    return found


@pytest.fixture
def child(tmp_path: Path) -> RunChild:
    """What our runner's process does, in this one."""
    made = RunChild(programs.TARGET, None, tmp_path)
    made.learn(programs.task("doubled"), ())
    return made


def test_a_good_kernel_has_seconds_of_each_run_from_both(
    stock: dict[str, Any], child: RunChild
) -> None:
    result = stock["doubled"]
    assert result.error_msg is None
    theirs = [float(seconds) for seconds in result.run_secs]
    assert len(theirs) == REPEATS * ALLOCATIONS
    assert (
        child.prepare(programs.task("doubled").key, (), programs.our_artifact("doubled")).error
        == ""
    )
    mine = child.time(TIMING, None).samples_s
    assert TIMING.min_samples <= len(mine) <= TIMING.min_samples + TIMING.max_samples
    assert all(0 < seconds < 1 for seconds in (*theirs, *mine))


def test_several_programs_are_timed_one_after_the_other(
    stock: dict[str, Any], tmp_path: Path
) -> None:
    child = RunChild(programs.TARGET, None, tmp_path)
    for name in programs.FORMULAS:
        assert min(float(seconds) for seconds in stock[name].run_secs) > 0
        child.learn(programs.task(name), ())
        checked = child.prepare(programs.task(name).key, (), programs.our_artifact(name))
        assert checked.error == ""
        assert min(child.time(TIMING, None).samples_s) > 0


def test_a_kernel_of_another_program_has_a_time_there_and_is_wrong_here(
    stock: dict[str, Any], ours: dict[str, Measurement]
) -> None:
    assert stock["squared"].error_msg is None
    assert len(stock["squared"].run_secs) == REPEATS * ALLOCATIONS
    wrong = ours["wrong"]
    assert (wrong.status, wrong.samples_s) == (Status.WRONG, ())
    assert wrong.error.startswith("output ")


def test_a_kernel_that_raises_gets_its_error_as_the_reason(
    stock: dict[str, Any], child: RunChild
) -> None:
    assert stock["raising"].run_secs is None
    assert stock["raising"].error_msg.startswith("LocalRunner: An exception occurred")
    assert "no.such.function" in stock["raising"].error_msg
    with pytest.raises(RuntimeError, match=r"no\.such\.function"):
        child.prepare(programs.task("doubled").key, (), programs.our_artifact("raising"))


def test_a_kernel_that_crashes_its_process_fails_alone(
    stock: dict[str, Any], ours: dict[str, Measurement]
) -> None:
    assert stock["crashing"].run_secs is None
    assert stock["crashing"].error_msg.startswith("LocalRunner: An exception occurred")
    assert stock["shifted"].error_msg is None, "the one after it"
    assert ours["crashing"].status is Status.RUN_FAILED
    assert "SIGABRT" in ours["crashing"].error


def test_a_kernel_that_does_not_end_is_ended_at_the_deadline(
    stock: dict[str, Any], ours: dict[str, Measurement]
) -> None:
    assert stock["unending"].run_secs is None
    assert stock["unending"].error_msg.startswith("LocalRunner: Timeout")
    assert (ours["unending"].status, ours["unending"].samples_s) == (Status.TIMEOUT, ())
    assert ours["unending"].run_s >= 0.5


def test_a_users_timing_is_called_once_for_each_set_of_arguments_and_stock_cleans_up_after_each(
    paths: dict[str, str], ours: dict[str, Measurement], tmp_path: Path
) -> None:
    """Where stock calls a function, ours ends the process of whatever failed."""
    from tvm.s_tir.meta_schedule.runner import LocalRunner

    def cleanup() -> None:
        with (tmp_path / "cleaned").open("a") as file:
            file.write("x")

    runner = LocalRunner(
        alloc_repeat=ALLOCATIONS, f_run_evaluator=programs.time_by(TIMER), f_cleanup=cleanup
    )
    small = programs.runner_input(paths["doubled"], (4, 4))
    good = programs.runner_input(paths["doubled"])
    first, failed, last = (future.result() for future in runner.run([good, small, good]))
    runner.pool.shutdown()
    assert (tmp_path / "cleaned").read_text() == "xxx"
    assert len(first.run_secs) == 3 * ALLOCATIONS
    processes = {float(second) for result in (first, last) for second in result.run_secs}
    assert len(processes) == 1, "whatever failed between"
    assert failed.run_secs is None
    assert "not in the mood" in failed.error_msg

    assert [ours[what].status for what in ("good", "again", "after wrong")] == [Status.OK] * 3
    assert len(ours["good"].samples_s) == 3
    assert ours["again"].samples_s == ours["good"].samples_s, "one process for good kernels"
    assert ours["after wrong"].samples_s != ours["good"].samples_s


def test_what_a_kernel_computes_is_right_in_a_users_hands_and_was_looked_at_here_before_its_timing(
    paths: dict[str, str], child: RunChild
) -> None:
    """A user of stock who wants to look at outputs has to do so in a timing function."""
    import tvm
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
    from tvm.s_tir.meta_schedule.runner.local_runner import (
        default_alloc_argument,
        default_run_evaluator,
    )

    device = tvm.cpu()
    info = [i.as_json() for i in programs.runner_input(paths["doubled"]).args_info]
    argument_sets = default_alloc_argument(device, info, ALLOCATIONS)
    library = tvm.runtime.load_module(paths["doubled"])
    assert len(default_run_evaluator(library, device, EvaluatorConfig(), argument_sets)) > 0
    for x, out in argument_sets:
        np.testing.assert_allclose(out.numpy(), 2 * x.numpy(), rtol=1e-6)

    key = programs.task("doubled").key
    assert child.prepare(key, (), programs.our_artifact("doubled")).error == ""
    assert "output " in child.prepare(key, (), programs.our_artifact("shifted")).error


def test_a_runner_class_that_raises_is_the_callers_there_and_the_runs_end_here(
    tmp_path: Path,
) -> None:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.runner import PyRunner

    from tuner.user_code.faults import LayerFailed

    @derived_object
    class Closed(PyRunner):  # type: ignore[misc]
        def run(self, runner_inputs: list[Any]) -> list[Any]:
            raise ValueError("not in the mood")

    with pytest.raises(ValueError, match="not in the mood"):
        Closed().run([])
    child = RunChild(programs.TARGET, None, tmp_path, Layers(runner=TIMER))
    small = programs.task("doubled", rows=4)
    child.learn(small, ())
    child.prepare(small.key, (), programs.our_artifact("doubled", rows=4))
    with pytest.raises(LayerFailed, match=r"timer\.py:7: ValueError: not in the mood"):
        child.time(TIMING, None)
