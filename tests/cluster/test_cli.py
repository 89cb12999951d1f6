"""The command line: what it refuses and how, what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from contextlib import closing
from pathlib import Path

import pytest

from cluster.app.cli import run
from cluster.app.commands.results.best import loss_curve, shapes_to_show
from cluster.app.driver.best_schedules import Explained
from tuner.candidate import Candidate, CandidateKind
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.record import Measurement, Record, Status, Trial
from tuner.run_location import RunLocation
from tuner.runs.folder import Manifest, RunFolder, open_run
from tuner.runs.remote import begin, remote_run
from tuner.storage.base import RecordStore, begin_session
from tuner.storage.facts import Defaults, SessionEnded, Tasks
from tuner.storage.segments.store import SegmentStore
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task

# ---- refused without opening anything: exit 2 ----

REFUSED = [
    ("frobnicate", "frobnicate"),
    ("tune", "give a model, or the run"),
    ("tune --run runs/x --dim T=1", "--dim: a run keeps its model, so nothing can be said beside"),
    ("tasks", "MODEL"),
    ("tune m.onnx --frobnicate", "--frobnicate"),
    ("tune m.onnx extra", "extra"),
    ("tune m.onnx --trials 0", "'0'"),
    ("tune m.onnx --trials -3", "'-3'"),
    ("tune m.onnx --trials many", "'many'"),
    ("tune m.onnx --seed -1", "'-1'"),
    ("tune m.onnx --time-budget 20", "'20'"),
    ("tune m.onnx --time-budget 0s", "'0s'"),
    ("tune m.onnx --time-budget soon", "'soon'"),
    ("tune m.onnx --time-budget", "--time-budget"),
    ("tune m.onnx --effort huge", "'huge'"),
    ("tune m.onnx --precision fp8", "'fp8'"),
    ("tune m.onnx --max-error large", "'large'"),
    ("tune m.onnx --calibrate rows.npy", "'rows.npy' names no inputs"),
    ("tune m.onnx --strategy lucky", "'lucky'"),
    ("tune m.onnx --shape x=1,a", "'x=1,a'"),
    ("tune m.onnx --shape x=1 --shape x=2", "'x'"),
    ("tune m.onnx --input x=data.csv", "'x=data.csv'"),
    ("tune m.onnx --arg 3=4", "'3=4'"),
    ("tune m.onnx --target vulkan", "'vulkan'"),
    ("tune m.onnx --target {", "JSON"),
    ('tune m.onnx --target {"kind":"rocm"}', "'rocm'"),
    ("tune m.onnx --address somewhere", "'somewhere'"),
    ("tasks m.onnx --target vulkan", "'vulkan'"),
    ("tasks m.onnx --shape x", "'x'"),
    ("status", "DIR"),
    ("status http://host/run", "http://"),
    ("tune m.onnx --run s3://", "s3://"),
    ("tune m.onnx --run file://runs/x", "file:///"),
    ("best DIR --tsak x", "--tsak"),
    ("export DIR", "exactly one"),
    ("export DIR --lib a.so --database d", "exactly one"),
    ("export DIR --lib x.foo", "a library's name ends in .so or .tar"),
    ("export DIR --records q.jsonl --allow-external", "--lib alone"),
    ("reproduce DIR gemm --shape foo", "T=16"),
    ("reproduce DIR gemm --shape T=1..4", "T=16"),
    ("reproduce DIR gemm --shape T=0", "'T=0'"),
    ("completion", "Name bash, zsh or fish."),
    ("bench DIR --fast", "--fast"),
    ("doctor everything", "everything"),
]


MANIFEST = Manifest("m.onnx", "hash", '{"kind":"llvm"}')


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and standard error of a command that fails, after what holds for all of them."""
    code = run(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert 1 <= len(err.splitlines()) <= 3
    assert "Traceback" not in err
    return code, err


@pytest.mark.parametrize(("line", "named"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_malformed_request_is_refused(
    line: str, named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is opened: whoever would open something cannot even be imported.
    for module in (
        "cluster.app.tune",
        "cluster.app.driver.export",
        "spaces.frontends.model",
        "tuner.storage.sqlite_store",
    ):
        monkeypatch.setitem(sys.modules, module, None)
    code, err = refused(line.split(" "), capsys)
    assert code == 2
    assert named in err


def test_an_empty_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["tune", ""], ["tune", "m.onnx", "--run", ""], ["status", " "]):
        code, err = refused(arguments, capsys)
        assert code == 2
        assert "empty" in err


# ---- found by looking: exit 1 ----


@pytest.mark.parametrize("command", ["status", "best", "export --records out.jsonl"])
def test_a_run_folder_that_is_missing(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name, *flags = command.split()
    code, err = refused([name, str(tmp_path / "nosuch"), *flags], capsys)
    assert code == 1
    assert "nosuch" in err


@pytest.mark.parametrize("command", ["status", "best", "export --records out.jsonl"])
def test_a_folder_that_is_no_run(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name, *flags = command.split()
    code, err = refused([name, str(tmp_path), *flags], capsys)
    assert code == 1
    assert str(tmp_path) in err


@pytest.mark.parametrize("command", ["status", "best", "export --records out.jsonl"])
def test_a_shared_run_that_is_missing(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name, *flags = command.split()
    url = (tmp_path / "nosuch").as_uri()
    code, err = refused([name, url, *flags], capsys)
    assert code == 1
    assert url in err


@pytest.mark.parametrize(
    "command",
    [
        *("status", "best", "explain", "report", "verify", "reproduce gemm"),
        *("export --records out.jsonl", "export --lib e.so", "export --database out"),
        pytest.param("bench", marks=pytest.mark.tvm),
    ],
)
def test_a_run_that_has_not_begun(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    open_run(tmp_path / "run", Manifest("m.onnx", "hash", '{"kind":"llvm"}'))
    name, *flags = command.split()
    code, err = refused([name, str(tmp_path / "run"), *flags], capsys)
    assert code == 1
    assert err == f"tuner: {tmp_path}/run holds no records yet: the run has not begun\n"


@pytest.mark.parametrize("command", ["status", "best", "export --records out.jsonl"])
def test_a_folder_of_runs_where_one_is_meant(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for run_name in "abc":
        open_run(tmp_path / run_name, MANIFEST)
    name, *flags = command.split()
    code, err = refused([name, str(tmp_path), *flags], capsys)
    assert code == 1
    assert err == f"tuner: {tmp_path} is a folder of runs: name one, as {tmp_path}/a\n"


def test_a_store_that_is_damaged(capsys: pytest.CaptureFixture[str], a_run: Path) -> None:
    RunFolder(a_run).store.write_bytes(b"this is no database " * 100)
    code, err = refused(["status", str(a_run)], capsys)
    assert code == 1
    assert "records.sqlite" in err


def test_a_task_that_the_run_does_not_have(capsys: pytest.CaptureFixture[str], a_run: Path) -> None:
    code, err = refused(["best", str(a_run), "--task", "nosuch"], capsys)
    assert code == 1
    assert "nosuch" in err


def test_records_that_cannot_be_written(capsys: pytest.CaptureFixture[str], a_run: Path) -> None:
    out = a_run / "run.json" / "records.jsonl"
    code, err = refused(["export", str(a_run), "--records", str(out)], capsys)
    assert code == 1
    assert str(out) in err


@pytest.mark.tvm
@pytest.mark.parametrize("model", ["nosuch.onnx", "nosuch.pt2", "nosuch.py:f", "nosuch.mod:f", "x"])
def test_a_model_that_is_missing(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refused(["tasks", model, "--target", "llvm"], capsys)
    assert code == 1
    assert model.split(":")[0] in err


@pytest.mark.tvm
def test_a_model_that_is_broken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\0\1\2 not a model")
    code, err = refused(["tasks", str(broken), "--target", "llvm"], capsys)
    assert code == 1
    assert "broken.onnx" in err


@pytest.mark.tvm
def test_a_function_that_is_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text("def one():\n    return 1\n")
    code, err = refused(["tasks", f"{tmp_path}/models.py:two", "--target", "llvm"], capsys)
    assert code == 1
    assert "two" in err


# ---- what commands print ----


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    """A run with one task, its default schedule and a failed trial."""
    folder, _ = open_run(tmp_path / "run", MANIFEST)
    with closing(SqliteStore(folder.store)) as store:
        fill(store)
    return tmp_path / "run"


@pytest.fixture
def a_shared_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same as segments on a shared path, written by someone else's machine."""
    url = (tmp_path / "shared" / "run").as_uri()
    there = remote_run(RunLocation.of(url), tmp_path / "there")
    begin(there, MANIFEST)
    with closing(SegmentStore(there.objects, there.run.store)) as store:
        fill(store)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    return url


def fill(store: RecordStore) -> None:
    default = Candidate(CandidateKind.TRACE, "[]", "test")
    other = Candidate(CandidateKind.TRACE, "[1]", "test")
    store.put(Tasks([Task("key", "gemm", "{}", "{}", 2.0, 4e6)]), Defaults({"key": default.key}))
    session = begin_session(store, 100.0)
    store.append_many(
        [(Record(Trial("key", default), Measurement(Status.OK, (0.004, 0.004))), None)]
    )
    store.append_many(
        [(Record(Trial("key", other), Measurement(Status.WRONG, error="differs")), None)]
    )
    store.put(SessionEnded(session, 104.0, "trials"))


@pytest.mark.parametrize("command", ["status", "status --json", "best --json"])
def test_a_shared_run_is_shown_like_a_local_one(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    a_run: Path,
    a_shared_run: str,
    command: str,
) -> None:
    fake = types.ModuleType("spaces.design_space.realize")
    fake.trace_text = lambda task, candidate: candidate.payload  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spaces.design_space.realize", fake)
    name, *flags = command.split()
    printed = []
    for one in (str(a_run), a_shared_run):
        assert run([name, one, *flags]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""


@pytest.mark.parametrize("shared", [False, True])
def test_records_are_brought_back_into_a_run(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    a_run: Path,
    a_shared_run: str,
    shared: bool,
) -> None:
    out = tmp_path / "records.jsonl"
    assert run(["export", str(a_run), "--records", str(out)]) == 0
    line = json.loads(out.read_text().splitlines()[1])
    line["candidate"]["payload"] = "[2]"
    out.write_text(out.read_text() + json.dumps(line) + "\n")
    name = a_shared_run if shared else str(a_run)
    capsys.readouterr()
    assert run(["restore", name, str(out)]) == 0
    assert capsys.readouterr().out == "added 1 record; 2 were there already\n"
    assert run(["status", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failures"] == {"wrong": 2}


def test_records_are_fetched_from_mlflow_and_brought_back(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    a_run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def fetched(uri: str, run_id: str, into: Path) -> Path:
        asked.append((uri, run_id))
        assert run(["export", str(a_run), "--records", str(into / "records.jsonl")]) == 0
        capsys.readouterr()
        return into

    monkeypatch.setattr("tuner.tracking.mlflow_records.fetch_records", fetched)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert run(["restore", str(a_run), "--mlflow", "abc"]) == 0
    assert capsys.readouterr().out == "added 0 records; 2 were there already\n"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert run(["restore", str(a_run), "--mlflow", "abc"]) == 0
    assert asked == [
        (f"sqlite:///{a_run.absolute() / 'mlflow.db'}", "abc"),
        ("http://127.0.0.1:5000", "abc"),
    ]


def test_nothing_to_restore_from_is_a_malformed_request(
    capsys: pytest.CaptureFixture[str], a_run: Path
) -> None:
    assert run(["restore", str(a_run)]) == 2
    assert "--mlflow RUN_ID" in capsys.readouterr().err


def test_the_records_of_a_shared_run_are_exported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, a_shared_run: str
) -> None:
    out = tmp_path / "records.jsonl"
    assert run(["export", a_shared_run, "--records", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 2
    assert "wrote 2 records" in capsys.readouterr().out


def test_status_as_json(capsys: pytest.CaptureFixture[str], a_run: Path) -> None:
    assert run(["status", str(a_run), "--json"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert err == ""
    assert {"trials", "ok", "failures", "elapsed_s", "trials_per_s", "tasks"} <= report.keys()
    assert (report["trials"], report["ok"], report["failures"]) == (2, 1, {"wrong": 1})
    assert [t["name"] for t in report["tasks"]] == ["gemm"]


def test_status_for_people(capsys: pytest.CaptureFixture[str], a_run: Path) -> None:
    assert run(["status", str(a_run)]) == 0
    head, row, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["task", "weight", "trials", "default", "best", "speed-up", "failed"]
    assert row.split() == ["gemm", "2", "2", "4.00", "ms", "4.00", "ms", "1.00x", "1", "wrong"]
    assert total == "2 trials in 0:04, 0.5/s; failed: 1 wrong"


def test_the_status_says_how_many_trials_were_cut_off(
    capsys: pytest.CaptureFixture[str], a_run: Path
) -> None:
    slow = Candidate(CandidateKind.TRACE, "[9]", "test")
    with closing(SqliteStore(RunFolder(a_run).store)) as store:
        store.append_many(
            [(Record(Trial("key", slow), Measurement(Status.CENSORED, (1.0,))), None)]
        )
    assert run(["status", str(a_run)]) == 0
    total = capsys.readouterr().out.splitlines()[-1]
    assert total == "3 trials in 0:04, 0.8/s; failed: 1 wrong; 1 cut off"


@pytest.mark.parametrize(("ended", "best_ms"), [(True, 3.0), (False, 2.0)])
def test_the_status_of_a_run_that_has_ended_is_that_of_its_kernels(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    ended: bool,
    best_ms: float,
) -> None:
    """One at work has its processor for itself: its best is known without choosing any."""
    folder, _ = open_run(tmp_path / "run", MANIFEST)
    shape = (("T", 1),)
    kernel = Candidate(CandidateKind.TRACE, "[1]", "test")
    with closing(SqliteStore(folder.store)) as store:
        store.put(Tasks([Task("key", "gemm", "{}", "{}", shapes=((shape, 1.0),))]))
        session = begin_session(store, 100.0)
        store.append_many(
            [(Record(Trial("key", kernel, shape), Measurement(Status.OK, (0.002,))), None)]
        )
        if ended:
            store.put(SessionEnded(session, 104.0, "trials"))
    times = ShapeTimes(shape, 1.0, 0, 0.003, 0.002, True)
    chosen = KernelSet((kernel,), Leaf(0), (1.0,), 1.0, (times,), None, 0)
    monkeypatch.setattr(
        "cluster.app.driver.kernel_sets.kernel_set", lambda store, task, most: chosen
    )
    assert run(["status", str(tmp_path / "run"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["tasks"]
    assert row["best_ms"] == pytest.approx(best_ms)


def test_best_as_json(
    capsys: pytest.CaptureFixture[str], a_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = types.ModuleType("spaces.design_space.realize")
    fake.trace_text = lambda task, candidate: f"# {task.name} {candidate.payload}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spaces.design_space.realize", fake)
    assert run(["best", str(a_run), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["tasks"]
    assert {"name", "weight", "trials", "default_ms", "latency_ms", "gflops"} <= row.keys()
    assert (row["latency_ms"], row["gflops"]) == (pytest.approx(4.0), pytest.approx(1.0))
    assert row["trace"] == "# gemm []"


def test_what_more_and_fewer_kernels_would_cost_is_shown_beside_what_was_taken() -> None:
    assert loss_curve([1.25, 1.09, 1.04], 2) == "1: 1.250, 2: 1.090 (taken), 3: 1.040"


def test_of_many_shapes_those_that_were_measured_are_shown_and_some_others() -> None:
    shapes = [{"T": n, "measured": n % 8 == 1} for n in range(1, 129)]
    shown = [shape["T"] for shape in shapes_to_show(shapes)]
    assert {n for n in range(1, 129) if n % 8 == 1} < set(shown)
    assert len(shown) <= 24
    assert shown == sorted(set(shown))
    few = shapes[:20]
    assert shapes_to_show(few) == few


def test_records_are_one_object_a_line(
    capsys: pytest.CaptureFixture[str], a_run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "records.jsonl"
    assert run(["export", str(a_run), "--records", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    keys = {"task", "candidate", "instance", "rung", "status", "seconds", "attempt", "worker"}
    assert all(keys | {"time"} <= row.keys() for row in rows)
    assert [row["status"] for row in rows] == ["ok", "wrong"]
    assert capsys.readouterr().out == f"wrote 2 records to {out}\n"


@pytest.mark.parametrize(
    "command", ["export {run} --records {out}", "reproduce {run} gemm -o {out}", "grafana {out}"]
)
def test_folders_above_an_output_that_are_missing_are_made(
    a_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    fake = types.ModuleType("cluster.app.driver.trust.reproduce")
    fake.reproduce = lambda *_: "a program"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    out = tmp_path / "not" / "there" / "out"
    assert run(command.format(run=a_run, out=out).split()) == 0
    assert out.stat().st_size > 0


EXPLAINED = {
    "name": "gemm",
    "weight": 1.0,
    "latency_ms": 0.004,
    "gflops": 114.7,
    "space": "rules:cpu",
    "predicted_ms": None,
    "settings": None,
    "loops": [],
    "kernels": [],
    "parallel_steps": 1,
    "cores": 1,
    "busy": 1.0,
    "lanes": 1,
    "caches": [],
    "remarks": [],
}


@pytest.mark.parametrize(
    ("default_ms", "said"),
    [
        (0.008, "# gemm: 4.00 us, 2.00x of its default schedule, 114.7 GFLOP/s"),
        (0.004, "# gemm: 4.00 us by its default schedule, 114.7 GFLOP/s"),
        (None, "# gemm: 4.00 us (its default schedule has no time), 114.7 GFLOP/s"),
    ],
)
def test_explain_says_what_the_default_schedule_takes_beside(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    a_run: Path,
    default_ms: float | None,
    said: str,
) -> None:
    explained = Explained(({**EXPLAINED, "default_ms": default_ms},))
    monkeypatch.setattr("cluster.app.driver.best_schedules.best_explained", lambda *_: explained)
    assert run(["explain", str(a_run)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == said


def test_explain_says_what_the_compiler_made_of_a_kernel(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, a_run: Path
) -> None:
    mix = {"in_loop": True, "instructions": 320, "counts": {"BAR": 1, "HMMA": 128, "LDSM.128": 32}}
    known = {
        "name": "main_kernel",
        "threads": 64,
        "registers": 210,
        "spilled_bytes": 0,
        "shared_bytes": 73728,
        "resident_blocks": 2,
        "occupancy": 0.0625,
        "mix": mix,
    }
    unknown = {**known, "resident_blocks": None, "mix": None}
    explained = Explained(({**EXPLAINED, "default_ms": 0.008, "kernels": [known, unknown]},))
    monkeypatch.setattr("cluster.app.driver.best_schedules.best_explained", lambda *_: explained)
    assert run(["explain", str(a_run)]) == 0
    compiled = "  compiled main_kernel: 210 registers in each of 64 threads, 0 bytes spilled"
    assert capsys.readouterr().out.splitlines()[2:6] == [
        compiled,
        "           72 KiB of shared memory in a block; 2 blocks on a multiprocessor, 6% of its "
        "threads",
        "           innermost loop: 320 instructions, 128 HMMA (40%), 32 LDSM.128 (10%), "
        "1 BAR (0%)",
        compiled,
    ]


def a_run_of(folder: Path, *tasks: Task) -> str:
    """A run with these tasks, of which nothing was measured."""
    with closing(SqliteStore(open_run(folder, MANIFEST)[0].store)) as store:
        store.put(Tasks(tasks))
    return str(folder)


FIXED = Task("f", "f", "{}", "{}")
SYMBOLIC = Task("s", "s", "{}", "{}", shapes=(((("T", 1),), 1.0),))


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([SYMBOLIC], ["s has symbolic dimensions: `tuner best` shows its kernels"]),
        ([FIXED], ["nothing was measured yet"]),
        ([], ["nothing was measured yet"]),
        (
            [FIXED, SYMBOLIC],
            [
                "s has symbolic dimensions: `tuner best` shows its kernels",
                "f: nothing was measured yet",
            ],
        ),
    ],
)
def test_explain_says_why_it_leaves_tasks_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tasks: list[Task], said: list[str]
) -> None:
    folder = a_run_of(tmp_path / "run", *tasks)
    assert run(["explain", folder]) == 0
    assert capsys.readouterr().out.splitlines() == said
    assert run(["explain", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"precision": None, "tasks": []}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("s", "s has symbolic dimensions: `tuner best` shows its kernels"),
        ("f", "f: nothing was measured yet"),
    ],
)
def test_a_task_that_is_named_and_cannot_be_explained_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, said: str
) -> None:
    folder = a_run_of(tmp_path / "run", FIXED, SYMBOLIC)
    for flags in ([], ["--json"]):
        assert refused(["explain", folder, name, *flags], capsys) == (1, f"tuner: {said}\n")


def test_bench_as_json_and_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = {
        "untuned_ms": 434.0,
        "tuned_ms": 21.7,
        "onnxruntime_ms": None,
        "max_abs_err": 1e-6,
        "max_rel_err": float("nan"),
        "spread": {"untuned": 0.02, "tuned": 0.013},
        "samples": {"untuned": 3, "tuned": 10},
        "reference": "untuned",
        "note": "not installed",
        "shape": {},
        "shapes": [],
    }
    fake = types.ModuleType("cluster.app.driver.export")
    fake.bench = lambda folder, dims=(), libraries=(): report  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cluster.app.driver.export", fake)
    assert run(["bench", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {**report, "max_rel_err": None}
    assert run(["bench", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["latency", "spread", "samples", "to", "tuned"]
    assert lines[1].split() == ["untuned", "434", "ms", "2%", "3", "20.0x"]
    assert lines[2].split() == ["tuned", "21.7", "ms", "1%", "10", "1.00x"]
    assert lines[3] == "onnxruntime: not installed"
    assert lines[4].endswith("to that of the untuned program: 1e-06, relative nan")
    assert "mlflow" in lines[-1]


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == run(["--help"]) == run(["tune", "--help"]) == run(["--version"]) == 0
    out, err = capsys.readouterr()
    for command in ("tune", "tasks", "status", "best", "export", "bench", "doctor"):
        assert f"\n  {command} " in out
    assert err == ""


@pytest.mark.parametrize("module", ["tuner", "cluster"])
def test_the_packages_are_commands(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "status"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("tuner status: Missing argument 'DIR'")
