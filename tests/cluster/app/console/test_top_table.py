"""Several runs in one table: golden texts of a pure function."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from cluster.app.console.top_table import in_order, top_picture
from tuner.record import Status
from tuner.report.summary import RunSummary, unreadable
from tuner.view.task_view import TaskView

NOW_S = 10_000.0
FAILED = {Status.WRONG: 1, Status.BUILD_FAILED: 6}
ROW = TaskView("k", "gemm", 2.0, 0.0, {Status.OK: 616, **FAILED}, 0.004, 0.00152)
WORKING = RunSummary(
    name="runs/a",
    state="at work",
    at_work=True,
    elapsed_s=3725.0,
    trials_per_s=2.34,
    utilisation={"runner": {"busy": 3.0, "no_builds": 1.0}, "builder": {"busy": 1.0}},
    seen_s=NOW_S,
    since_improved_s=75.0,
    tasks=(ROW, replace(ROW, name="softmax", weight=1.0)),
)
ENDED = replace(
    WORKING,
    name="runs/b",
    state="ended: trials",
    at_work=False,
    settled=True,
    seen_s=NOW_S - 500,
    since_improved_s=600.0,
    tasks=tuple(replace(task, statuses={Status.OK: 617}) for task in WORKING.tasks),
)
EMPTY = RunSummary(name="runs/c", state="not begun")
BROKEN = unreadable("runs/d", "there is no run folder runs/d")


def render(*summaries: RunSummary, width: int = 130, rows: int | None = None) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(top_picture(summaries, width=width, rows=rows))
    return "\n".join(text.rstrip() for text in console.export_text().splitlines()) + "\n"


def test_several_runs() -> None:
    assert render(BROKEN, EMPTY, ENDED, WORKING) == (
        """\
run     state          elapsed  trials   /s  latency   gain      of  flat for  failed  runner  \
builder  space
runs/a  at work        1:02:05    1234  2.3  4.56 ms  2.63x  search      1:15      14     75%  \
   100%      -
runs/b  ended: trials  1:02:05    1234  2.3  4.56 ms  2.63x     end     10:00             75%  \
   100%      -
runs/c  not begun         0:00       0  0.0        -      -       -         -               -  \
      -      -
there is no run folder runs/d
"""
    )


@pytest.mark.parametrize(
    ("name", "state", "line"),
    [
        ("runs/d", "there is no run folder runs/d", "there is no run folder runs/d"),
        ("runs/d", "runs/d/records.sqlite is damaged", "runs/d/records.sqlite is damaged"),
        ("runs/d", "damaged: KeyError: 'x'", "runs/d: damaged: KeyError: 'x'"),
        ("d", "damaged: KeyError: 'x'", "d: damaged: KeyError: 'x'"),
        ("d", "there is no run folder runs/d", "d: there is no run folder runs/d"),
    ],
)
def test_a_run_that_cannot_be_read_is_named_once(name: str, state: str, line: str) -> None:
    assert render(unreadable(name, state)) == f"{line}\n"


def test_of_a_long_name_the_end_is_shown() -> None:
    long = replace(WORKING, name="/folder/of/runs/that/are/kept/for/ever/here/b")
    assert render(long, EMPTY).splitlines()[1].startswith("…t/for/ever/here/b  at work  ")
    assert render(long, width=80).splitlines()[1].startswith("…r/ever/here/b  at work  ")


def test_a_run_that_is_alone_shows_its_tasks_and_how_trials_failed() -> None:
    assert render(WORKING) == (
        """\
run     state    elapsed  trials   /s  latency   gain      of  flat for  failed  runner  builder  \
space
runs/a  at work  1:02:05    1234  2.3  4.56 ms  2.63x  search      1:15      14     75%     100%  \
    -
failed: 12 build failed, 2 wrong

task     weight  trials  default  best so far  speed-up  failed
gemm          2     617  4.00 ms      1.52 ms     2.63x       7
softmax       1     617  4.00 ms      1.52 ms     2.63x       7
"""
    )


def test_a_narrow_terminal_has_the_numbers_whole() -> None:
    lines = render(WORKING, ENDED, width=80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    for number in ("1:02:05", "1234", "4.56 ms", "2.63x", "14"):
        assert number in lines[1]
    assert lines[2].startswith("runs/b  ended: trials  ")


def test_there_are_never_more_lines_than_the_terminal_has() -> None:
    many = [replace(ENDED, name=f"runs/{n}", seen_s=float(n)) for n in range(50)]
    broken = [unreadable(f"runs/broken{n}", "why " * 50) for n in range(50)]
    for rows in (10, 24):
        lines = render(*many, *broken, rows=rows).splitlines()
        assert len(lines) <= rows
        assert lines[-1] == f"and {100 - (rows - 3)} more"
    tasks = tuple(replace(ROW, name=f"t{n}") for n in range(99))
    assert len(render(replace(WORKING, tasks=tasks), rows=24).splitlines()) <= 24


def test_runs_at_work_come_first_and_each_once() -> None:
    names = [summary.name for summary in in_order([BROKEN, ENDED, EMPTY, WORKING, ENDED])]
    assert names == ["runs/a", ENDED.name, "runs/c", "runs/d"]


def test_no_runs() -> None:
    assert render() == "no runs\n"
