"""Builders, stock's and ours: the same programs run alike, and a bad build fails alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.builder import Builder, Built
from tests.compatibility import worker_programs as programs
from tuner.candidate import Candidate
from tuner.errors import TunerError
from tuner.layers import Layers
from tuner.record import Measurement, Record, Status, Trial
from tuner.source import Source

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

HANG_S = 1.5
GOOD = ("squared", "shifted", "doubled")
BATCH = ("squared", "raises", "shifted", "refused", "unsaved", "doubled", "hangs")

MOODY = Source(
    "moody.py",
    """
import time

class Moody:
    def build(self, module, target):
        import tvm
        text = str(module)
        if "raises" in text:
            raise ValueError("not in the mood")
        if "refused" in text:
            target = "no such target"
        if "hangs" in text:
            time.sleep(60)
        return None if "unsaved" in text else tvm.compile(module, target=target).mod
""",
    "Moody",
)
"""A user's builder, which acts by the program that it is given."""


@dataclass(frozen=True)
class Answers:
    """What both builders say of each program of a batch."""

    stock: dict[str, Any]
    ours: dict[str, Built | Measurement]
    as_they_are: dict[str, Built | Measurement]
    """Modules that our builder built without the user's."""

    def failed(self, name: str) -> tuple[str, Measurement]:
        """What stock says of a program that it did not build, and what we say."""
        theirs, mine = self.stock[name], self.ours[name]
        assert theirs.artifact_path is None
        assert isinstance(mine, Measurement)
        return str(theirs.error_msg), mine


@pytest.fixture(scope="module")
def moody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """A batch of programs that a user's builder builds, or does not."""
    import tvm

    results = dict(zip(BATCH, in_one_batch(BATCH), strict=True))
    built: dict[str, Built | Measurement] = {}
    as_they_are: dict[str, Built | Measurement] = {}
    folder = tmp_path_factory.mktemp("moody")
    with closing(Builder(log_dir=folder, layers=Layers(builder=MOODY))) as builder:
        for name in GOOD:
            module = tvm.ir.save_json(programs.module(name))
            as_they_are[name] = builder.build_module(module, programs.TARGET, 60.0)
        for name in BATCH:
            deadline_s = 0.5 if name == "hangs" else 60.0
            built[name] = builder.build(programs.task(name), candidate_of(name), deadline_s)
    yield Answers(results, built, as_they_are)
    for result in results.values():
        if result.artifact_path is not None:
            shutil.rmtree(Path(result.artifact_path).parent)


def in_one_batch(names: tuple[str, ...]) -> list[Any]:
    from tvm.s_tir.meta_schedule.builder import LocalBuilder

    def export(library: Any) -> str:
        from tvm.s_tir.meta_schedule.builder.local_builder import default_export

        if library is None:
            raise OSError("nothing to save")
        return str(default_export(library))

    build = programs.build_by(MOODY)
    builder = LocalBuilder(max_workers=1, timeout_sec=HANG_S, f_build=build, f_export=export)
    return list(builder.build(inputs(*names)))


def inputs(*names: str) -> list[Any]:
    from tvm.s_tir.meta_schedule.builder import BuilderInput

    return [BuilderInput(programs.module(name), programs.target()) for name in names]


def candidate_of(name: str) -> Candidate:
    from spaces.design_space.default_schedule import default_candidate

    return default_candidate(programs.task(name))


@pytest.mark.parametrize("name", GOOD)
def test_what_a_users_builder_builds_computes_the_same_before_and_after_bad_builds(
    moody: Answers, name: str
) -> None:
    import tvm

    from spaces.codegen.artifact import load_artifact

    theirs, mine = moody.stock[name], moody.ours[name]
    assert theirs.error_msg is None
    assert isinstance(mine, Built), mine
    right = programs.FORMULAS[name](programs.INPUT)
    for loaded in (tvm.runtime.load_module(theirs.artifact_path), load_artifact(mine.artifact)):
        np.testing.assert_allclose(programs.output_of(loaded), right, rtol=1e-6)


@pytest.mark.parametrize("name", GOOD)
def test_scheduled_modules_are_built_as_they_are_by_stocks_own_build_function_and_ours(
    moody: Answers, name: str
) -> None:
    import tvm

    from spaces.codegen.artifact import load_artifact

    path, mine = programs.stock_artifact(name), moody.as_they_are[name]
    assert isinstance(mine, Built), mine
    np.testing.assert_array_equal(
        programs.output_of(load_artifact(mine.artifact)),
        programs.output_of(tvm.runtime.load_module(path)),
    )
    shutil.rmtree(Path(path).parent)


def test_a_users_builder_that_raises_is_an_error_result_and_ours_names_the_line(
    moody: Answers,
) -> None:
    said, failed = moody.failed("raises")
    assert said.startswith("LocalBuilder: An exception occurred")
    assert "not in the mood" in said
    assert failed.status is Status.BUILD_FAILED
    assert failed.fault.startswith("moody.py:9: ValueError: not in the mood")


def test_what_a_compiler_refuses_fails_that_program_and_nobody_is_blamed(moody: Answers) -> None:
    said, failed = moody.failed("refused")
    assert "no such target" in said
    assert (failed.status, failed.fault) == (Status.BUILD_FAILED, "")
    assert "no such target" in failed.error


def test_what_cannot_be_exported_is_a_failed_build(moody: Answers) -> None:
    said, failed = moody.failed("unsaved")
    assert "nothing to save" in said
    assert failed.status is Status.BUILD_FAILED
    assert failed.error


def test_a_builder_that_hangs_is_ended_at_the_deadline(moody: Answers) -> None:
    said, failed = moody.failed("hangs")
    assert said.startswith("LocalBuilder: Timeout")
    assert failed.status is Status.BUILD_FAILED
    assert "no answer within 0.5 s" in failed.error


def test_a_builder_that_is_nowhere_is_told_before_anything_is_built() -> None:
    from tvm.s_tir.meta_schedule.builder import LocalBuilder

    from tuner.user_code.find import find_layer

    with pytest.raises(ValueError, match=r"no\.such\.function"):
        LocalBuilder(max_workers=1, f_build="no.such.function")
    with pytest.raises(TunerError, match=r"no\.such\.module"):
        find_layer("no.such.module:Builder", "builder")


def test_a_class_that_answers_for_whole_batches_is_a_builder_there_and_a_measurer_here() -> None:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder

    from tuner.contracts.contracts import CONTRACTS
    from tuner.user_code.contract import check

    @derived_object
    class Closed(PyBuilder):  # type: ignore[misc]
        def build(self, build_inputs: list[Any]) -> list[Any]:
            return [BuilderResult(None, "closed today") for _ in build_inputs]

    results = Closed().build(inputs(*GOOD))
    assert [(r.artifact_path, r.error_msg) for r in results] == [(None, "closed today")] * 3
    check(measurer := ClosedToday(), CONTRACTS["measurer"].protocol, "measurer")
    measurer.submit([Trial(name, candidate_of(name)) for name in GOOD])
    records = measurer.collect(0.0)
    assert [(r.trial.task_key, r.measurement.error) for r in records] == [
        (name, "closed today") for name in GOOD
    ]


class ClosedToday:
    """A measurer that builds nothing."""

    def __init__(self) -> None:
        self._taken: list[Trial] = []

    def free(self) -> int:
        return 8

    def submit(self, trials: list[Trial], cutoff_s: float | None = None) -> None:
        self._taken += trials

    def collect(self, timeout_s: float) -> list[Record]:
        taken, self._taken = self._taken, []
        closed = Measurement(Status.BUILD_FAILED, error="closed today")
        return [Record(trial, closed) for trial in taken]

    def toolchain(self) -> str | None:
        return None

    def close(self) -> None:
        self._taken.clear()
