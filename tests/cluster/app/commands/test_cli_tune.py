"""`tuner tune` on the command line, with someone else's search behind it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.app.api.tune import options_of
from cluster.app.cli import run
from cluster.app.driver.tune_result import TuneResult
from tuner.errors import TunerError, UsageError
from tuner.record import Status
from tuner.request.model_spec import IntRange, ModelSpec
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.task_view import TaskView

SNAPSHOT = Snapshot(
    phase=Phase.DONE,
    elapsed_s=10.0,
    time_budget_s=60.0,
    trials_budget=7,
    trials_per_s=0.7,
    tasks=(TaskView("key", "gemm", 1.0, 0.0, {Status.OK: 6, Status.WRONG: 1}, 0.004, 0.001),),
)

Tune = Callable[..., TuneResult]


def result(run: Path | str, ended: str = "done", warnings: tuple[str, ...] = ()) -> TuneResult:
    return TuneResult(run, SNAPSHOT, ended, warnings, "mlflow ui")


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tune], None]:
    """Puts a function in the place of `cluster.app.tune.tune`."""

    def use(function: Tune) -> None:
        fake = types.ModuleType("cluster.app.tune")
        fake.tune = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cluster.app.tune", fake)

    return use


def test_flags_become_options(
    searching: Callable[[Tune], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[TuneOptions, Any]] = []

    def fake(options: TuneOptions, **hooks: Any) -> TuneResult:
        asked.append((options, hooks["tracking_uri"]))
        return result(Path("runs/x"), "done")

    searching(fake)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    flags = (
        "--shape x=1,3 --input ids=int:0..9 --arg m=512 --target llvm --trials 64 --seed 3 "
        "--time-budget 1h30m --effort quick --only conv* --run runs/x --address 127.0.0.1:6379 "
        "--precision int8 --calibrate rows.npz --max-error 2%"
    )
    assert run(["tune", "m.onnx", *flags.split()]) == 0
    options, uri = asked[0]
    assert uri == "http://127.0.0.1:5000"
    assert options.model.shapes == (("x", (1, 3)),)
    assert options.model.inputs == (("ids", IntRange(0, 9)),)
    assert options.model.args == (("m", 512),)
    assert (options.target, options.trials, options.seed) == ("llvm", 64, 3)
    assert (options.time_budget_s, options.effort.name) == (5400.0, "quick")
    assert (options.only, options.run, options.address) == (
        "conv*",
        RunLocation("runs/x"),
        "127.0.0.1:6379",
    )
    assert (options.precision, options.calibrate) == ("int8", "rows.npz")
    assert options.max_error == 0.02
    assert options.strategy == "evolutionary"
    assert options.effort.timing.cut is not None
    assert "runs/x" in capsys.readouterr().out


def test_without_a_model_a_run_goes_on_with_its_own(
    searching: Callable[[Tune], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {RunLocation("runs/x"): ModelSpec("kept.onnx")}
    asked: list[TuneOptions] = []

    def fake(options: TuneOptions, **_: Any) -> TuneResult:
        asked.append(options)
        return result(Path("runs/x"), "done")

    searching(fake)
    monkeypatch.setattr("cluster.app.commands.tune.load_kept_model", kept.__getitem__)
    assert run(["tune", "--run", "runs/x", "--trials", "8"]) == 0
    assert (asked[0].model, asked[0].trials) == (ModelSpec("kept.onnx"), 8)


@pytest.mark.parametrize(("where", "says"), [("nosuch", "there is no run"), (".", "no run folder")])
def test_without_a_model_the_run_has_to_be_there(
    where: str,
    says: str,
    searching: Callable[[Tune], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    searching(lambda *_, **__: pytest.fail("nothing is tuned"))
    assert run(["tune", "--run", str(tmp_path / where)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert str(tmp_path) in line


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], {}),
        (["--run", "runs/x", "--dim", "T=1"], {"run": "runs/x", "dims": {"T": 1}}),
        (["--run", "runs/x", "--arg", "m=1"], {"run": "runs/x", "args": {"m": 1}}),
        (["--shape", "x=1"], {"shapes": {"x": (1,)}}),
    ],
)
def test_what_cannot_be_said_without_a_model_is_refused_as_from_python(
    flags: list[str], said: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", *flags]) == 2
    with pytest.raises(UsageError) as refused:
        options_of(None, said)
    assert str(refused.value).rpartition(": ")[2] in capsys.readouterr().err


def test_a_run_may_cut_nothing_off(searching: Callable[[Tune], None]) -> None:
    asked: list[TuneOptions] = []

    def fake(options: TuneOptions, **_: Any) -> TuneResult:
        asked.append(options)
        return result(Path("runs/x"), "done")

    searching(fake)
    assert run(["tune", "m.onnx", "--no-cut"]) == 0
    assert asked[0].effort.timing.cut is None


def test_a_run_may_be_named_by_a_url(
    searching: Callable[[Tune], None], capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[TuneOptions] = []

    def fake(options: TuneOptions, **_: Any) -> TuneResult:
        asked.append(options)
        assert isinstance(options.run, RunLocation)
        return result(options.run.named, "done")

    searching(fake)
    flags = ["--run", "s3://bucket/run1", "--seeds-from", "gs://b/r", "--seeds-from", "runs/x"]
    assert run(["tune", "m.onnx", *flags]) == 0
    assert asked[0].run == RunLocation("s3://bucket/run1")
    assert asked[0].seeds_from == (RunLocation("gs://b/r"), RunLocation("runs/x"))
    assert "tuner bench s3://bucket/run1 " in capsys.readouterr().out


def test_json_is_alone_on_standard_output(
    searching: Callable[[Tune], None], capfd: pytest.CaptureFixture[str]
) -> None:
    def chatty(options: TuneOptions, *, watch: Callable[[Snapshot], None], **_: Any) -> TuneResult:
        watch(SNAPSHOT)
        print("from Python")
        os.write(1, b"from native code\n")
        return result(Path("runs/x"), "trials", ("MLflow does not answer",))

    searching(chatty)
    assert run(["tune", "m.onnx", "--json"]) == 0
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert (report["run"], report["ended"], report["trials"]) == ("runs/x", "trials", 7)
    assert (report["gain"], report["tasks"][0]["best_ms"]) == (4.0, pytest.approx(1.0))
    for text in ("from Python", "from native code", "warning: MLflow does not answer"):
        assert text in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_in_order(
    number: signal.Signals,
    code: int,
    searching: Callable[[Tune], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def waiting(
        options: TuneOptions,
        *,
        watch: Callable[[Snapshot], None],
        stop: threading.Event,
        on_ready: Callable[[], None],
        **_: Any,
    ) -> TuneResult:
        on_ready()
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        watch(SNAPSHOT)
        return result(Path("runs/x"), "signal")

    searching(waiting)
    before = signal.getsignal(number)
    assert run(["tune", "m.onnx"]) == code
    out = capsys.readouterr().out
    assert "stopping: results are kept" in out
    assert "tuner bench runs/x" in out
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_the_search(
    number: signal.Signals,
    code: int,
    searching: Callable[[Tune], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(options: TuneOptions, *, stop: threading.Event, **_: Any) -> TuneResult:
        os.kill(os.getpid(), number)
        stop.wait(10)
        raise AssertionError("nothing interrupted this")

    searching(interrupted)
    assert run(["tune", "m.onnx"]) == code
    assert "interrupted before the search began" in capsys.readouterr().err


def test_a_sigterm_that_ray_takes_for_itself_while_it_starts(
    searching: Callable[[Tune], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def starting(options: TuneOptions, **_: Any) -> TuneResult:
        raise SystemExit(int(signal.SIGTERM))  # what Ray's own handler does

    searching(starting)
    assert run(["tune", "m.onnx"]) == 143
    assert "interrupted before the search began" in capsys.readouterr().err


def test_a_signal_while_a_run_ends_by_itself_still_shows_in_the_exit_code(
    searching: Callable[[Tune], None],
) -> None:
    def ending(
        options: TuneOptions, *, stop: threading.Event, on_ready: Callable[[], None], **_: Any
    ) -> TuneResult:
        on_ready()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(10)
        return result(Path("runs/x"), "trials")

    searching(ending)
    assert run(["tune", "m.onnx"]) == 130


def test_an_error_in_a_run_is_one_line(
    searching: Callable[[Tune], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def held(options: TuneOptions, **_: Any) -> TuneResult:
        raise TunerError("runs/x is in use by process 7: wait until it ends, or end it")

    searching(held)
    assert run(["tune", "m.onnx", "--run", "runs/x"]) == 1
    err = capsys.readouterr().err
    assert err == "tuner: runs/x is in use by process 7: wait until it ends, or end it\n"


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_traceback_only_with_debug(
    where: str, searching: Callable[[Tune], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def defective(options: TuneOptions, **_: Any) -> TuneResult:
        raise RuntimeError("first line\nsecond line\nthird line\nfourth line")

    searching(defective)
    assert run(["tune", "m.onnx"]) == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) <= 3
    assert "RuntimeError: first line" in err
    assert "Traceback" not in err
    line = ["--debug", "tune", "m.onnx"] if where == "before" else ["tune", "m.onnx", "--debug"]
    assert run(line) == 1
    assert "Traceback" in capsys.readouterr().err
