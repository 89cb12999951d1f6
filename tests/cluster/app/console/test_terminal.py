"""A run looks calm: one table on a terminal, a line now and then in a log."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from cluster.app.console.terminal import (
    LiveScreen,
    LogScreen,
    duration,
    latency,
    line,
    list_names,
    picture,
    ratio,
    screen_for,
    size,
    utilisation,
)
from tuner.record import Status
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.task_view import TaskView

LONG = "fused_conv2d1_add_multiply_relu_and_more_of_the_same_long_name"
FAILED = {Status.BUILD_FAILED: 1, Status.INVALID: 2}
TASKS = (
    TaskView("k1", "conv2d_relu", 1, 0.0, {Status.OK: 40, **FAILED}, 0.0123, 0.000456),
    TaskView("k2", LONG, 8, 0.0, {Status.OK: 53, Status.CENSORED: 11}, 0.08, 0.02),
    TaskView("k3", "softmax[x]"),
)
SNAPSHOT = Snapshot(
    phase=Phase.SEARCH,
    elapsed_s=157.4,
    time_budget_s=600,
    trials_budget=960,
    trials_per_s=2.34,
    tasks=TASKS,
    pairwise_accuracy=0.81,
)

HEAD = "search  104/960 trials  2.3/s  gain so far 4.07x  6:05 left  model 81% right"
FOOT = "failed: 2 invalid, 1 build failed"
NUMBERS = """\
weight  trials  default  best so far  speed-up  failed
     8      64  80.0 ms      20.0 ms     4.00x
     1      40  12.3 ms       456 us     27.0x       3
     1       0        -            -         -
"""
NAMES_AT_80 = ("task", "fused_conv2d1_add_multi…", "conv2d_relu", "softmax[x]")
NAMES_AT_120 = ("task", TASKS[1].name, "conv2d_relu", "softmax[x]")


def golden(names: tuple[str, ...], name_width: int) -> str:
    """The screen with these names; the numbers stay whole at any width."""
    pairs = zip(names, NUMBERS.splitlines(), strict=True)
    return "\n".join([HEAD, *(f"{n:<{name_width}}  {rest}" for n, rest in pairs), FOOT]) + "\n"


def rendered(snapshot: Snapshot, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(picture(snapshot))
    return "\n".join(text.rstrip() for text in console.export_text().splitlines()) + "\n"


@pytest.mark.parametrize(
    ("width", "names", "name_width"), [(80, NAMES_AT_80, 24), (120, NAMES_AT_120, 62)]
)
def test_the_table(width: int, names: tuple[str, ...], name_width: int) -> None:
    assert rendered(SNAPSHOT, width) == golden(names, name_width)


def test_many_tasks_are_summed_up() -> None:
    rows = tuple(
        replace(TASKS[0], name=f"task{i:02}", weight=60 - i, statuses={Status.OK: i, **FAILED})
        for i in range(30)
    )
    lines = rendered(replace(SNAPSHOT, tasks=rows), 80).splitlines()
    assert len(lines) == 1 + 1 + 15 + 1
    assert lines[2].startswith("task00")
    assert lines[-2].split() == ["and", "16", "more", "616", "344", "48"]


def test_a_run_that_has_nothing_to_show_yet() -> None:
    empty = Snapshot(phase=Phase.STARTING, time_budget_s=60, message="reading the model")
    assert rendered(empty, 80) == "starting  1:00 left\nreading the model\n"
    assert line(replace(empty, trials_budget=32)).startswith("starting  0/32 trials  0.0/s  1:00")


def test_how_busy_the_workers_were_is_said_with_the_reasons() -> None:
    seconds = {
        "runner": {"busy": 6.0, "no_builds": 3.0, "starting": 1.0},
        "builder": {"busy": 20.0},
        "space": {},
    }
    said = "busy: builder 100%, runner 60% (30% no builds, 10% starting)"
    over = replace(SNAPSHOT, phase=Phase.DONE, utilisation=seconds)
    assert utilisation(seconds) == said
    assert utilisation({}) == ""
    assert rendered(over, 80).splitlines()[-1] == said
    assert line(over).endswith(f"{FOOT}  {said}")
    assert said not in line(replace(over, phase=Phase.SEARCH)), "a line in a log stays short"


@pytest.mark.parametrize(
    ("tasks", "per_s", "left"), [(TASKS, 2.34, "6:05"), (TASKS, 0.5, "7:22"), ((), 0.0, "7:22")]
)
def test_what_is_left_is_what_the_budget_that_is_spent_first_leaves(
    tasks: tuple[TaskView, ...], per_s: float, left: str
) -> None:
    said = line(replace(SNAPSHOT, tasks=tasks, trials_per_s=per_s))
    assert f"  {left} left  " in said


@pytest.mark.parametrize("phase", [Phase.ENDING, Phase.FINALISTS, Phase.DONE])
def test_a_run_whose_search_is_over_says_what_it_took(phase: Phase) -> None:
    assert "2:37 taken" in line(replace(SNAPSHOT, phase=phase))


def test_numbers_for_people() -> None:
    values = (None, 0.0, 3.21e-7, 9.996e-6, 0.000999, 0.0999, 0.4341, 12.0)
    texts = ["-", "0.00 ns", "321 ns", "10.0 us", "999 us", "99.9 ms", "434 ms", "12.0 s"]
    assert [latency(v) for v in values] == texts
    assert [duration(s) for s in (-3, 59.9, 61, 3661)] == ["0:00", "0:59", "1:01", "1:01:01"]
    assert [ratio(r) for r in (None, 1.0, 41.26, 1234.5)] == ["-", "1.00x", "41.3x", "1234x"]


def test_sizes_are_told_exactly_and_for_people() -> None:
    assert size(0) == "0 bytes"
    assert size(1023) == "1023 bytes"
    assert size(1234567) == "1,234,567 bytes, 1.18 MiB"
    assert size(3 * 2**30) == "3,221,225,472 bytes, 3.00 GiB"


def test_of_many_names_the_first_are_listed() -> None:
    assert list_names(["a", "b"]) == "a, b"
    assert list_names([str(n) for n in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


def test_a_log_gets_a_line_every_five_seconds_and_at_each_change() -> None:
    now = [100.0]
    out = io.StringIO()
    screen = LogScreen(out, clock=lambda: now[0])
    for second in range(12):  # lines at 0, 5 and 10
        now[0] = 100.0 + second
        screen.show(SNAPSHOT)
        screen.show(SNAPSHOT)
    assert out.getvalue().count("\n") == 3
    screen.show(replace(SNAPSHOT, phase=Phase.FINALISTS))
    screen.show(replace(SNAPSHOT, phase=Phase.FINALISTS, message="a message is not news"))
    screen.show(replace(SNAPSHOT, phase=Phase.FINALISTS), note="stopping")
    screen.show(replace(SNAPSHOT, phase=Phase.FINALISTS))
    screen.close()
    lines = out.getvalue().splitlines()
    assert lines[3].startswith("finalists  104/960 trials")
    assert lines[4].endswith("failed: 2 invalid, 1 build failed  stopping")
    assert len(lines) == 5
    assert "\x1b" not in out.getvalue()


def test_a_log_is_told_once_that_a_run_is_done() -> None:
    """The tracker may take half a minute to send what is left: nothing changes any more."""
    now = [100.0]
    out = io.StringIO()
    screen = LogScreen(out, clock=lambda: now[0])
    for second in range(30):
        now[0] = 100.0 + second
        screen.show(replace(SNAPSHOT, phase=Phase.DONE))
    assert out.getvalue().count("\n") == 1


def test_details_put_every_task_in_the_log_once_a_phase() -> None:
    out = io.StringIO()
    screen = LogScreen(out, clock=lambda: 0.0, details=True)
    screen.show(SNAPSHOT)
    screen.show(SNAPSHOT)
    assert out.getvalue().count("conv2d_relu") == 1


def test_a_terminal_gets_one_table_redrawn_in_place() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24, _environ={})
    screen = LiveScreen(console)
    screen.show(SNAPSHOT)
    screen.show(SNAPSHOT, note="stopping")
    screen.close()
    assert "\x1b[1A\x1b[2K" in out.getvalue()  # went up and drew over the first
    assert out.getvalue().endswith("stopping\n\x1b[?25h")  # the cursor is shown again


def test_the_screen_follows_the_stream() -> None:
    assert isinstance(screen_for(io.StringIO()), LogScreen)
