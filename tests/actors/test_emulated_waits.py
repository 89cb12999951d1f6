"""A kernel that waits for ever on the emulated device is a timeout, and its error names the place.

Each is a right kernel whose compiled code was given a wait that nothing ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.runner import Runner
from spaces.codegen.artifact import build_artifact
from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.realize import realize
from spaces.emulation import library
from spaces.targets.target import emulate_target
from spaces.testing import programs
from tests.spaces.emulation.run_program import WAIT_FOR_NOBODY
from tuner.effort import Timing
from tuner.record import Measurement, Status

pytestmark = [pytest.mark.tvm, pytest.mark.slow]
EMULATED = emulate_target('{"kind":"cuda","arch":"sm_80"}')
TASK = programs.task(EMULATED)
TIMING = Timing(sample_s=0.001, total_s=0.004, min_samples=3, max_samples=5)
DEADLINE_S = 4.0
_SPINS = """
  volatile int never = 0;
  if (threadIdx.x == 0) while (never == 0) {}
  __syncthreads();"""
_BARRIER = 'if (threadIdx.x == 0) asm volatile("bar.sync 3, 64;");'


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tmp_path_factory.mktemp("runner")
    runner = Runner(target=EMULATED, log_dir=folder, scratch=Path(folder))
    assert runner.learn(TASK, (), 60.0).error == ""
    yield runner
    runner.close()


def run(runner: Runner, artifact: bytes) -> Measurement:
    return runner.run(TASK, artifact, timing=TIMING, cutoff_s=None, deadline_s=DEADLINE_S)


def built_with(wait: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """An artifact whose kernel begins with a text."""
    compile_kernels = library.compile_kernels

    def edited(source: str, *rest: Any) -> bytes:
        head, mark, kernel = source.rpartition('extern "C" __global__')
        signature, brace, body = kernel.partition("{")
        return compile_kernels("".join([head, mark, signature, brace, wait, body]), *rest)

    monkeypatch.setattr(library, "compile_kernels", edited)
    return build_artifact(realize(TASK, default_candidate(TASK)).mod, EMULATED)


@pytest.mark.parametrize(
    ("wait", "place"),
    [
        pytest.param(WAIT_FOR_NOBODY, "mbarrier.try_wait of the mbarrier at", id="mbarrier"),
        pytest.param(_BARRIER, "waits at barrier 3", id="named barrier"),
        pytest.param(
            _SPINS,
            "waits at __syncthreads",
            id="one thread never comes",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_wait_that_never_ends_is_a_timeout_that_names_it(
    runner: Runner, wait: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = run(runner, built_with(wait, monkeypatch))
    assert measured.status is Status.TIMEOUT, measured.error
    assert place in measured.error


def test_without_the_wait_the_kernel_is_right(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = run(runner, built_with("", monkeypatch))
    assert measured.status is Status.OK, measured.error
