"""A run is verified: what its records say of its winners is found to be so, or is not."""

from __future__ import annotations

import json
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.app.cli import run as command
from tests.cluster.app.driver.real_run import database, real_run
from tests.contracts.programs import gemm_task, setting_of
from tests.needed import needs_nvcc
from tuner.candidate import Candidate, CandidateKind
from tuner.layers import Layers
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.run_location import RunLocation
from tuner.runs.folder import Manifest, open_run
from tuner.runs.remote import open_store
from tuner.source import Source
from tuner.storage.base import begin_session
from tuner.storage.facts import Defaults, SessionEnded, Sizes, Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.user_code.find import find_layer
from tuner.view.winners import winning_records

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[5]
CPU = '{"kind":"llvm","num-cores":1}'
STEADY = '''
class Steady:
    """A clock of which no machine is slower."""
    def time(self, module, arguments, device, timing, cutoff_s):
        return [1e-3, 1e-3, 1e-3]
'''


def elementwise(name: str, rows: int) -> Task:
    """y = 2 x + 1."""
    from tvm import te

    from spaces.lowering.extract_tasks import task_of

    x = te.placeholder((rows, 32), name="x")
    y = te.compute((rows, 32), lambda i, j: x[i, j] * 2.0 + 1.0, name="y")
    return task_of(te.create_prim_func([x, y]), CPU, name=name)


def scheduled(task: Task, write: Callable[[Any], None]) -> Candidate:
    """The trace of a schedule by hand."""
    from spaces.ir.schedules import canonical_payload, new_schedule, task_module

    schedule = new_schedule(task_module(task.module))
    write(schedule)
    return Candidate(CandidateKind.TRACE, canonical_payload(schedule.trace), "mine")


def vectorized(lanes: int) -> Callable[[Any], None]:
    def write(schedule: Any) -> None:
        _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("y"))[-1], [None, lanes])
        schedule.vectorize(inner)

    return write


def narrowed(schedule: Any) -> None:
    """Sums in a type that is too small for them."""
    block = schedule.cache_write(schedule.get_sblock("C"), 0, "global")
    schedule.unsafe_set_dtype(schedule.get_sblock("C"), 0, "float16")
    assert block is not None


@dataclass(frozen=True)
class Made:
    """A run, and the file of the clock that it was timed with."""

    folder: Path
    clock: str

    def changed(self, statement: str, *values: object) -> None:
        """Change its records."""
        with sqlite3.connect(database(self.folder)) as db:
            assert db.execute(statement, values).rowcount > 0

    def verified(self, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, Any]:
        """The exit code of the command, and what it prints."""
        code = command(["verify", str(self.folder), "--json", "--runner", self.clock, *flags])
        return code, json.loads(capsys.readouterr().out)


def samples(*seconds: float) -> bytes:
    return struct.pack(f"<{len(seconds)}d", *seconds)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A run of four tasks, whose default schedules take a little longer than their winners."""
    folder = tmp_path_factory.mktemp("verified")
    (folder / "clock.py").write_text(STEADY)
    product = gemm_task(CPU, 32)
    tasks = {
        product: [setting_of(product)],
        **{
            task: [scheduled(task, vectorized(lanes)) for lanes in (8, 16)]
            for task in map(elementwise, ("small", "large", "sound"), (16, 64, 8))
        },
    }
    clock = Source(f"{folder}/clock.py", STEADY, "Steady")
    made = Made(real_run(folder / "run", tasks, Layers(runner=clock)), f"{folder}/clock.py:Steady")
    made.changed(
        "UPDATE record SET samples_s = ?, latency_s = 1.05e-3 WHERE space = 'default'",
        samples(1.05e-3),
    )
    return made


@pytest.fixture
def made(measured: Made, tmp_path: Path) -> Made:
    """A copy of it, to be changed."""
    shutil.copytree(measured.folder, tmp_path / "run")
    return Made(tmp_path / "run", measured.clock)


def fabricated(folder: Path, task: Task, candidate: Candidate) -> Path:
    """A run whose one record nobody measured, elsewhere."""
    run, _ = open_run(folder, Manifest("network", "hash", task.target))
    with closing(open_store(RunLocation.of(run.root), run)) as store:
        store.put(Tasks([task]), Defaults({task.key: candidate.key}))
        store.put(Sizes({task.key: {candidate.space: 0}}))
        session = begin_session(store, 100.0)
        measured = Measurement(Status.OK, (1e-3,))
        store.append_many(
            [(Record(Trial(task.key, candidate), measured, Provenance("x", "a board")), None)]
        )
        store.put(SessionEnded(session, 104.0, "trials"))
    return run.root


def has_cuda() -> bool:
    import tvm

    return bool(tvm.cuda().exist)


def winners(made: Made) -> dict[str, Candidate]:
    """Of each task, by its key."""
    with closing(SqliteStore(database(made.folder), read_only=True)) as store:
        return {r.trial.task_key: r.trial.candidate for r in winning_records(store)}


def named(found: Any) -> dict[str, Any]:
    return {task["name"]: task for task in found["tasks"]}


HALVED = (
    "UPDATE record SET samples_s = ?, latency_s = 5e-4 WHERE task_key = ? AND space <> 'default'"
)
ONCE = ("--repeat", "1")


def test_what_was_changed_is_found_and_what_was_not_is_well(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace, a time and a program at once, each of another task."""
    swap_traces(made, gemm_task(CPU, 32))
    made.changed(HALVED, samples(5e-4, 5e-4, 5e-4), elementwise("large", 64).key)
    other = elementwise("other", 24)
    small = elementwise("small", 16)
    module = zlib.compress(other.module.encode())
    made.changed("UPDATE task SET module = ? WHERE key = ?", module, small.key)
    code, found = made.verified(capsys, *ONCE)
    assert (code, found["ok"]) == (1, False)
    why = {task["name"]: task["why"] for task in found["tasks"]}
    assert why["gemm"][0].startswith("its record is of program ")
    assert why["large"][0].startswith("slower: 2.00x of its record's time")
    assert why["small"] == [f"its key is {small.key}, and its program's is {other.key}"]
    assert why["sound"] == []
    assert named(found)["sound"]["verdict"] == "same"


def swap_traces(made: Made, task: Task) -> None:
    """Have the records of the settings that won hold the trace of others."""
    from spaces.design_space.knob_space import KnobSpace
    from spaces.templates.registry import templates_of
    from tests.contracts.programs import write_down

    space = KnobSpace(task, templates_of(task)[0])
    other = write_down(space, space.ranked[5]).candidate
    trace = zlib.compress(other.trace.encode())
    made.changed("UPDATE written SET trace = ? WHERE task_key = ?", trace, task.key)


@pytest.mark.long
def test_a_run_as_it_was_measured_is_well(
    measured: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = measured.verified(capsys)
    assert [task["why"] for task in found["tasks"]] == [[]] * 4
    assert {task["verdict"] for task in found["tasks"]} == {"same"}
    assert {task["ratio"] for task in found["tasks"]} == {1.0}
    assert (code, found["ok"], found["judged"], found["machine"]) == (0, True, True, 1.0)
    code, again = measured.verified(capsys, "--task", "large", "--seed", "7", *ONCE)
    assert (code, again["seed"], list(named(again))) == (0, 7, ["large"])


@pytest.mark.long
def test_a_schedule_that_is_filed_under_another_is_found(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under the key of the winner is another trace now, which the store gives to both tasks."""
    small = elementwise("small", 16)
    stolen = scheduled(small, vectorized(4))
    made.changed(
        "UPDATE candidate SET payload = ? WHERE key = ?",
        zlib.compress(stolen.payload.encode()),
        winners(made)[small.key].key,
    )
    code, found = made.verified(capsys, *ONCE)
    assert code == 1
    assert "hold the schedule of another candidate" in named(found)["small"]["why"][0]
    assert named(found)["gemm"]["verdict"] == "same"


@pytest.mark.long
@pytest.mark.parametrize(
    ("column", "note"),
    [("device", "measured on another board"), ("toolchain", "compiled with another board")],
)
def test_times_of_another_device_or_toolchain_are_told_and_not_judged(
    made: Made, capsys: pytest.CaptureFixture[str], column: str, note: str
) -> None:
    made.changed(f"UPDATE record SET {column} = 'another board'")
    made.changed(
        "UPDATE record SET samples_s = ?, latency_s = 5e-4 WHERE space <> 'default'",
        samples(5e-4),
    )
    code, found = made.verified(capsys, *ONCE)
    assert (code, found["judged"]) == (0, False)
    assert [(task["verdict"], task["ratio"]) for task in found["tasks"]] == [("right", 2.0)] * 4
    assert found["notes"][0].startswith(note)
    code, found = made.verified(capsys, *ONCE, "--anyway")
    assert (code, found["judged"]) == (1, True)
    assert {task["verdict"] for task in found["tasks"]} == {"differs"}


@pytest.mark.long
def test_without_the_clock_that_it_was_timed_with_times_are_not_judged(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["verify", str(made.folder), "--repeat", "1", "--task", "small"]) == 0
    out = capsys.readouterr().out
    assert "times are not judged: timed by the runner " in out
    assert "name it with --runner" in out
    assert "1 winner: 1 right (inputs of --seed " in out


@pytest.mark.long
def test_kernels_for_many_shapes_are_looked_at_on_shapes_that_they_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a run of an earlier commit, whose toolchain had other passes."""
    run = tmp_path / "run"
    shutil.copytree(ROOT / "tests/golden/run/dynamic", run)
    Made(run, "").changed(
        "UPDATE record SET toolchain = replace(toolchain, 'passes', 'passes=0 old')"
    )
    assert command(["verify", str(run), "--json", *ONCE]) == 0
    found = json.loads(capsys.readouterr().out)
    shapes = [task["shape"]["T_x16"] for task in found["tasks"]]
    assert len(shapes) == len(set(shapes)) > 1
    assert {task["verdict"] for task in found["tasks"]} <= {"same", "right"}
    assert all(task["latency_ms"] > 0 for task in found["tasks"])
    assert any("passes=" in note for note in found["notes"])


@pytest.mark.long
@needs_nvcc
def test_on_a_machine_without_the_device_winners_are_rebuilt_and_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from spaces.design_space.default_schedule import default_candidate

    if has_cuda():
        pytest.skip("this machine has the device")
    task = gemm_task('{"arch":"sm_80","kind":"cuda","max_num_threads":1024}', 64)
    run = fabricated(tmp_path / "run", task, default_candidate(task))
    assert command(["verify", str(run), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["notes"] == ["this machine has no cuda device"]
    (winner,) = found["tasks"]
    assert (winner["verdict"], winner["why"]) == ("unchecked", found["notes"])
    Made(run, "").changed("UPDATE record SET code_hash = 'another'")
    assert command(["verify", str(run), "--json"]) == 1
    (winner,) = json.loads(capsys.readouterr().out)["tasks"]
    assert winner["verdict"] == "differs"


@pytest.mark.long
def test_the_library_of_a_winner_has_to_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from spaces.libraries.offers import offer
    from spaces.lowering.extract_tasks import task_of
    from tests.spaces.libraries import cumsum

    task = task_of(cumsum.cumsum(8, 256), CPU, name="cumsum")
    assert cumsum.__file__ is not None
    text = Path(cumsum.__file__).read_text()
    (tmp_path / "wrong.py").write_text(text.replace("LIBRARIES = Sums", "LIBRARIES = Wrong"))
    for file, flags, verdict in (
        (cumsum.__file__, [], "unchecked"),
        (cumsum.__file__, ["--library", cumsum.__file__], "right"),
        (f"{tmp_path}/wrong.py", ["--library", f"{tmp_path}/wrong.py"], "differs"),
    ):
        candidate = offer(find_layer(file, "libraries"), task)
        assert candidate is not None
        run = fabricated(tmp_path / f"run {verdict}", task, candidate)
        code = command(["verify", str(run), "--json", *flags, *ONCE])
        (winner,) = json.loads(capsys.readouterr().out)["tasks"]
        assert (winner["verdict"], code) == (verdict, 0 if verdict == "right" else 1)
        assert verdict == "right" or winner["why"]


@pytest.mark.long
def test_a_wrong_output_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the clock of this machine: whoever is wrong is not timed."""
    task = gemm_task(CPU, 32)
    good, wrong = setting_of(task), scheduled(task, narrowed)
    run = real_run(tmp_path / "run", {task: [good, wrong]}, again=0)
    made = Made(run, "")
    made.changed(
        "UPDATE record SET status = 'ok', error = '\"\"', samples_s = ?, latency_s = 1e-9 "
        "WHERE candidate_key = ? AND status = 'wrong'",
        samples(1e-9),
        wrong.key,
    )
    assert command(["verify", str(run), "--json", "--repeat", "1"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["tasks"]
    assert (found["candidate"], found["verdict"]) == (wrong.key, "differs")
    assert found["why"][0].startswith("its output is wrong: output C: ")
    assert found["latency_ms"] is None


@pytest.mark.long
def test_a_time_that_nobody_measured_is_found_by_this_machines_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a factor that no machine is slower by."""
    task = elementwise("scale", 64)
    run = real_run(tmp_path / "run", {task: [scheduled(task, vectorized(8))]}, again=1)
    Made(run, "").changed(
        "UPDATE record SET samples_s = ?, latency_s = 1e-12 WHERE space <> 'default'",
        samples(1e-12),
    )
    assert command(["verify", str(run), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["tasks"]
    assert found["why"][0].startswith("slower: ")


def test_what_is_not_there_is_refused_in_one_line(
    measured: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["verify", str(tmp_path / "nowhere")]) == 1
    assert "there is no run" in capsys.readouterr().err
    assert command(["verify", str(measured.folder), "--task", "other"]) == 1
    assert capsys.readouterr().err == (
        "tuner: this run has no task other: `tuner status` lists its tasks\n"
    )
    assert command(["verify", str(measured.folder), "--repeat", "0"]) == 2
