"""Programs that have a time already."""

from __future__ import annotations

from dataclasses import replace

from tuner.candidate import of_knobs
from tuner.measure import BuildDeadlines, BuiltKernels, MeasuredPrograms
from tuner.record import Measurement, Record, Status, Trial

SHAPE = (("n", 4),)
TIMED = Record(
    Trial("task", of_knobs({"rows": 1}, "kernel:a"), SHAPE),
    Measurement(Status.OK, (2.0, 3.0)),
    code_hash="code",
)
TWIN = Trial("task", of_knobs({"rows": 2}, "kernel:a"), SHAPE)


def test_the_twin_of_a_timed_candidate_gets_its_samples() -> None:
    reused = MeasuredPrograms([TIMED]).reused(TWIN, "code", 0.5)
    assert reused == Measurement(Status.DUPLICATE, (2.0, 3.0), build_s=0.5)


def test_another_program_task_or_shape_has_no_time() -> None:
    programs = MeasuredPrograms([TIMED])
    assert programs.reused(TWIN, "other code", 0.5) is None
    assert programs.reused(TWIN, "", 0.5) is None
    assert programs.reused(replace(TWIN, task_key="other"), "code", 0.5) is None
    assert programs.reused(replace(TWIN, instance=()), "code", 0.5) is None


def test_finalists_and_repeated_trials_are_timed_anew() -> None:
    programs = MeasuredPrograms([TIMED])
    assert programs.reused(replace(TWIN, rung=1), "code", 0.5) is None
    assert programs.reused(TIMED.trial, "code", 0.5) is None


def test_only_times_of_the_search_are_given_on() -> None:
    retimed = replace(TIMED, trial=replace(TIMED.trial, rung=1))
    wrong = replace(TIMED, measurement=Measurement(Status.WRONG))
    assert MeasuredPrograms([retimed, wrong]).reused(TWIN, "code", 0.5) is None


class TestBuildDeadlines:
    def test_the_first_builds_of_a_task_have_what_the_effort_allows(self) -> None:
        deadlines = BuildDeadlines(60.0)
        for _ in range(4):
            deadlines.built("task", 0.1)
        assert deadlines.of(TWIN) == 60.0

    def test_later_ones_have_many_times_the_longest_so_far(self) -> None:
        deadlines = BuildDeadlines(60.0)
        for build_s in (0.1, 0.2, 1.0, 0.3, 0.1):
            deadlines.built("task", build_s)
        assert deadlines.of(TWIN) == 30.0
        assert deadlines.of(replace(TWIN, task_key="other")) == 60.0
        deadlines.built("task", 40.0)
        assert deadlines.of(TWIN) == 60.0, "never more than the effort allows"

    def test_a_busy_machine_is_allowed_for(self) -> None:
        deadlines = BuildDeadlines(60.0)
        for _ in range(9):
            deadlines.built("task", 0.01)
        assert deadlines.of(TWIN) == 10.0

    def test_finalists_were_built_before_and_have_the_whole(self) -> None:
        deadlines = BuildDeadlines(60.0)
        for _ in range(9):
            deadlines.built("task", 0.01)
        assert deadlines.of(replace(TWIN, rung=1)) == 60.0


class TestBuiltKernels:
    def kept(self, built: BuiltKernels[str], *rows: int) -> list[str | None]:
        return [built.find(self.trial(n)) for n in rows]

    def trial(self, rows: int, *, rung: int = 0) -> Trial:
        return Trial("task", of_knobs({"rows": rows}, "kernel:a"), rung=rung)

    def test_the_fastest_of_a_task_are_kept(self) -> None:
        built = BuiltKernels[str](2)
        for rows, latency_s in ((1, 3.0), (2, 1.0), (3, 2.0), (4, None)):
            built.settle(self.trial(rows), latency_s, f"artifact {rows}")
        assert self.kept(built, 1, 2, 3, 4) == [None, "artifact 2", "artifact 3", None]
        assert built.find(self.trial(2, rung=3)) == "artifact 2", "in each round"

    def test_of_each_task(self) -> None:
        built = BuiltKernels[str](1)
        built.settle(self.trial(1), 3.0, "slow")
        other = replace(self.trial(2), task_key="other")
        built.settle(other, 1.0, "fast")
        assert (built.find(self.trial(1)), built.find(other)) == ("slow", "fast")

    def test_what_is_timed_on_other_shapes_or_again_is_kept_as_soon_as_it_was_built(self) -> None:
        built = BuiltKernels[str](0)
        built.add(self.trial(1), "once")
        built.add(self.trial(3, rung=1), "again")
        built.add(TWIN, "on a shape")
        assert self.kept(built, 1) == [None]
        assert built.find(self.trial(3, rung=2)) == "again"
        assert built.find(replace(TWIN, instance=(("n", 9),))) == "on a shape"

    def test_what_was_lost_is_built_anew(self) -> None:
        built = BuiltKernels[str](1)
        built.settle(self.trial(1), 1.0, "artifact")
        built.drop(self.trial(1))
        assert self.kept(built, 1) == [None]
