"""What layers of one's own keep to that work on scheduled programs: they need TVM."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.testing import programs
from tuner.contracts.seams import Compiles, Extracts, Mutates, PostProcesses, Times
from tuner.effort import EFFORTS

_MANY = 8


class FeaturesContract:
    """Subclass it as `Test...` with `made`, which makes a feature extractor from a target."""

    made: Callable[[str], Extracts]

    def test_each_program_has_a_vector_of_one_length(self) -> None:
        rows = self._extract()
        assert {row.shape for row in rows} == {rows[0].shape}
        assert rows[0].ndim == 1
        assert all(np.isfinite(row).all() for row in rows)

    def test_they_are_the_same_in_another_process(self) -> None:
        for one, other in zip(self._extract(), self._extract(), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_they_tell_programs_apart(self) -> None:
        assert len({row.tobytes() for row in self._extract()}) > 1

    def test_they_leave_schedules_as_they_are(self) -> None:
        schedules = programs.schedules(2)
        before = [str(schedule.mod) for schedule in schedules]
        type(self).made(programs.TARGET).extract(programs.task().module, schedules)
        assert [str(schedule.mod) for schedule in schedules] == before

    def _extract(self) -> list[Any]:
        extractor = type(self).made(programs.TARGET)
        found = extractor.extract(programs.task().module, programs.schedules(_MANY))
        return [np.asarray(row, np.float32) for row in found]


class MutatorContract:
    """Subclass it as `Test...` with `made`, which makes a mutator from nothing."""

    made: Callable[[], Mutates]

    @pytest.fixture
    def traces(self) -> list[Any]:
        """Traces of the rules' schedules."""
        return [schedule.trace for schedule in programs.schedules(_MANY)]

    def test_the_same_random_numbers_give_the_same_trace(self, traces: list[Any]) -> None:
        texts = [
            [str(type(self).made().apply(trace, random.Random(3))) for trace in traces]
            for _ in range(2)
        ]
        assert texts[0] == texts[1]

    def test_it_leaves_the_parent_as_it_is(self, traces: list[Any]) -> None:
        before = [str(trace) for trace in traces]
        for trace in traces:
            type(self).made().apply(trace, random.Random(3))
        assert [str(trace) for trace in traces] == before

    def test_it_changes_some_trace(self, traces: list[Any]) -> None:
        mutants = [
            (trace, type(self).made().apply(trace, random.Random(seed)))
            for trace in traces
            for seed in range(4)
        ]
        assert any(m is not None and str(m) != str(trace) for trace, m in mutants)


class PostprocContract:
    """Subclass it as `Test...` with `made`, which makes a post-processor from nothing."""

    made: Callable[[], PostProcesses]

    def test_it_says_of_each_schedule_whether_it_is_taken(self) -> None:
        assert {type(taken) for taken, _ in self._apply()} == {bool}

    def test_it_takes_some(self) -> None:
        assert any(taken for taken, _ in self._apply())

    def test_it_changes_equal_schedules_equally(self) -> None:
        assert self._apply() == self._apply()

    def _apply(self) -> list[tuple[bool, str]]:
        found = []
        for schedule in programs.schedules(_MANY):
            schedule.enter_postproc()
            found.append((type(self).made().apply(schedule), str(schedule.mod)))
        return found


class BuilderContract:
    """Subclass it as `Test...` with `made`, which makes a builder from nothing."""

    made: Callable[[], Compiles]

    def test_what_it_builds_is_loaded_and_right(self) -> None:
        module = programs.build_unscheduled(type(self).made().build)
        for seed in range(2):
            _, tensors, right = programs.arguments(seed)
            module["main"](*tensors)
            np.testing.assert_allclose(tensors[-1].numpy(), right, rtol=1e-4, atol=1e-5)

    def test_it_may_build_again(self) -> None:
        builder = type(self).made()
        for _ in range(2):
            assert programs.build_unscheduled(builder.build) is not None


class RunnerContract:
    """Subclass it as `Test...` with `made`, which makes a runner from nothing."""

    made: Callable[[], Times]

    def test_its_samples_are_seconds(self) -> None:
        module = programs.build_unscheduled(programs.compile_with_tvm)
        device, tensors, right = programs.arguments()
        for cutoff_s in (None, 10.0):
            timing = EFFORTS["quick"].timing
            samples = list(type(self).made().time(module, tensors, device, timing, cutoff_s))
            assert samples
            assert all(0 < float(sample) < 1 for sample in samples)
        np.testing.assert_allclose(tensors[-1].numpy(), right, rtol=1e-4, atol=1e-5)
