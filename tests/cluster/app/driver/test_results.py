"""What an export leaves out is said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.app.cli import run
from cluster.app.driver import export
from cluster.app.driver.results import Results
from spaces.deploy import database
from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.record import Measurement, Record, Status, Trial
from tuner.task import Task


def task(name: str) -> Task:
    return Task(name, name, "", "{}", 1.0, 0.0)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tasks of a database, which is written nowhere; one symbolic task is left."""
    candidate = Candidate(CandidateKind.TRACE, "[]", "default")
    record = Record(Trial("fixed", candidate), Measurement(Status.OK, (1e-3,)))
    finished = SimpleNamespace(
        results=Results((), ((task("symbolic"), None),), ((task("fixed"), record),)),  # type: ignore[arg-type]
        lowered=None,
    )
    monkeypatch.setattr(export, "_open", lambda folder: finished)
    names: list[str] = []

    def write(directory: Path, entries: Any, *, lowered: Any) -> list[str]:
        names.extend(task.name for task, _, _ in entries)
        return []

    monkeypatch.setattr(database, "export_database", write)
    return names


def test_a_database_lacks_the_tasks_with_symbolic_dimensions(
    written: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "cluster.app.commands.results.export.folder_of", lambda folder, *, model: folder
    )
    assert run(["export", str(tmp_path), "--database", str(tmp_path / "out")]) == 0
    assert written == ["fixed"]
    wrote, left_out = capsys.readouterr().out.splitlines()
    assert wrote.startswith("wrote ")
    assert left_out.startswith("left out symbolic: a database holds one schedule for a program")


def test_a_database_of_no_schedule_is_refused_in_a_true_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the one task a program of its own alone was timed, which is no schedule."""
    candidate = Candidate(CandidateKind.KNOBS, "{}", "declared:mine@1", '{"program": ""}')
    record = Record(Trial("fixed", candidate), Measurement(Status.OK, (1e-3,)))
    results = Results(((task("fixed"), record),), ())
    monkeypatch.setattr(export, "_open", lambda folder: SimpleNamespace(results=results))
    with pytest.raises(TunerError, match="of others no schedule was timed"):
        export.export_database(tmp_path, tmp_path / "out")


@pytest.mark.tvm
@pytest.mark.parametrize(("shapes", "budget_s"), [(1, 20.0), (3, 20.0), (4, 15.0), (12, 10.0)])
def test_a_comparison_has_20_seconds_and_all_shapes_60_but_10_each(
    shapes: int, budget_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spaces.codegen import executable
    from spaces.deploy import bench, divisors
    from spaces.frontends import inputs, model_copy
    from spaces.targets import config, cores, target

    given: list[float] = []

    def measure(*_: Any, budget_s: float, **__: Any) -> Any:
        given.append(budget_s)
        return SimpleNamespace(to_json=dict)

    model = SimpleNamespace(shapes=(), inputs=())
    finished = SimpleNamespace(
        model=model,
        lowered=SimpleNamespace(functions={}),
        target="{}",
        tuned=lambda: None,
        results=Results((), ()),
    )
    folder, manifest = SimpleNamespace(model_dir=tmp_path), SimpleNamespace(target="{}")
    monkeypatch.setattr(export, "read_run", lambda _: (folder, manifest))
    monkeypatch.setattr(export, "_open", lambda _: finished)
    monkeypatch.setattr(export, "_choose_shapes", lambda *_: [()] * shapes)
    monkeypatch.setattr(bench, "bench", measure)
    monkeypatch.setattr(executable, "compile_module", lambda *_: None)
    monkeypatch.setattr(executable, "compile_plainly", lambda *_: None)
    monkeypatch.setattr(divisors, "find_divisors", lambda _: frozenset())
    monkeypatch.setattr(inputs, "make_inputs", lambda *_, **__: [])
    monkeypatch.setattr(model_copy, "load_input_values", lambda _: ())
    monkeypatch.setattr(target, "refuse_other_features", lambda _: None)
    monkeypatch.setattr(config, "target_cores", lambda _: 1)
    monkeypatch.setattr(cores, "thread_variables", lambda _: {})
    export.bench_here(tmp_path)
    assert given == [budget_s] * shapes
