"""The docs say what the program does: no command, flag, key or file that one of them lacks."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import itertools
import json
import math
import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pytest

from cluster.app.cli import cli, run
from cluster.app.commands.results.bench import _print as bench_report
from cluster.app.commands.tasks import task_report
from cluster.app.commands.tune import Onward
from cluster.app.commands.tune import _report as tune_report
from cluster.app.commands.tune import _summary as tune_summary
from cluster.app.console.doctor_checks import Finding
from cluster.app.driver.best_schedules import best_schedules
from cluster.app.driver.kernel_sets import describe_set
from cluster.app.driver.tune_result import TuneResult
from docs.flag_tables import REFERENCE, renew
from spaces.codegen.cuda.mix import Mix
from spaces.deploy.explain import CacheUse, Compiled, Explanation, LoopOf
from tuner.candidate import Candidate, CandidateKind, of_knobs
from tuner.cost_models.base import FittedModel
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.effort import EFFORTS, Timing
from tuner.record import Measurement, Predicted, Provenance, Record, Status, Trial
from tuner.report.summary import RunSummary, summary_json
from tuner.report.trust.claims import Claim
from tuner.report.trust.verify import Seen, Verdict, judge
from tuner.runs.folder import RunFolder
from tuner.search.dynamic.small_shape_fallback import SLOWER
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import MemoryStore, SqliteStore
from tuner.task import Task
from tuner.tracking.entries import Metrics, TrackingPaths
from tuner.tracking.observer import RunStatus, TrackingObserver
from tuner.tracking.reader import Position, RunReader
from tuner.tracking.tracker import open_command
from tuner.utilisation import BUILDER, BUSY, RUNNER, SPACE, STARTING, WAITING, Idle
from tuner.view.as_json import status_json
from tuner.view.folds import view_run
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.run_view import SpaceView
from tuner.view.task_view import TaskView

ROOT = Path(__file__).resolve().parents[1]
DOCS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(doc.relative_to(ROOT)) for doc in DOCS]
OTHERS = {
    *("pip", "mlflow", "ray", "export", "make", "python", "docker", "kubectl"),
    *("prometheus", "grafana"),
}
"""What a reader may be told to run besides `tuner`."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_FILE = re.compile(
    r"`((?:tuner|spaces|actors|cluster|tests|docs|examples|benchmarks)/[\w./-]*)(?::\w+)?`"
)
_ROW = re.compile(r"^\| `([^`]+)`(?:, `([^`]+)`)* \|", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    doc: str
    language: str
    text: str


def blocks(*languages: str) -> list[Block]:
    return [
        Block(name, language, text)
        for name, doc in zip(NAMES, DOCS, strict=True)
        for language, text in _FENCE.findall(doc.read_text())
        if language in languages
    ]


def prose(doc: Path) -> str:
    return _FENCE.sub("", doc.read_text())


def anchors(doc: Path) -> set[str]:
    """What the headings of a document can be linked by, made as GitHub does."""
    headings = re.findall(r"^#+ (.+)$", prose(doc), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def section(heading: str) -> str:
    """The text of the reference below a heading, up to the next one."""
    found = re.search(
        rf"^##+ {re.escape(heading)}$\n(.*?)(?=^##+ |\Z)",
        _FENCE.sub("", REFERENCE.read_text()),
        re.MULTILINE | re.DOTALL,
    )
    assert found, f"docs/reference.md has no section {heading!r}"
    return found[1]


def rows(heading: str) -> list[str]:
    """What the first column of a section's tables names."""
    return [
        name for row in _ROW.finditer(section(heading)) for name in re.findall("`([^`]+)`", row[0])
    ]


# ---- documents ----


def test_there_are_documents() -> None:
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/reference.md"} <= set(NAMES)


def test_what_everybody_reads_first_is_short() -> None:
    readme, contributing, changes = (
        (ROOT / f"{name}.md").read_text() for name in ("README", "CONTRIBUTING", "CHANGELOG")
    )
    assert readme.splitlines().index("```python") < 25
    assert max(len(text.split()) for text in (readme, contributing)) <= 900
    assert len(changes.splitlines()) <= 60


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    doc = ROOT / name
    for link in _LINK.findall(prose(doc)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        file = (doc.parent / path).resolve() if path else doc
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_named_exist(name: str) -> None:
    for path in _FILE.findall(prose(ROOT / name)):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("block", blocks("python"), ids=lambda b: b.doc)
def test_python_code_compiles_and_knows_us(block: Block) -> None:
    """Names imported from our packages exist, and calls of them have the right arguments."""
    tree = ast.parse(block.text)
    compile(tree, block.doc, "exec")
    known: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
            module = importlib.import_module(node.module)
            known |= {alias.name: getattr(module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if is_ours(alias.name)]
            known |= {name: importlib.import_module(name) for name in found}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (called := resolved(node.func, known)):
            keywords = {k.arg: None for k in node.keywords if k.arg}
            inspect.signature(called).bind(*node.args, **keywords)


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("tuner", "spaces", "actors", "cluster")


def resolved(node: ast.expr, known: dict[str, Any]) -> Any:
    """The object of ours that an expression names; None for anything else."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := resolved(node.value, known)):
        return getattr(owner, node.attr)
    return None


# ---- commands and flags ----


def shell_lines() -> Iterator[tuple[str, list[str]]]:
    for block in blocks("sh", "bash", "shell", "console"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield f"{block.doc}: {line}", words
                if words[:3] == ["ray", "job", "submit"]:
                    yield f"{block.doc}: {line}", words[words.index("--") + 1 :]


def test_commands_that_are_shown_can_be_run() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    seen = set()
    for where, words in shell_lines():
        seen.add(words[0])
        if words[0] == "tuner":
            command = cli.commands[words[1]]
            assert command.make_context(words[1], words[2:]), where
        elif words[0] == "make":
            assert words[1] in targets, where
        elif words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2]), where
        elif words[0] == "python":
            assert (ROOT / words[1]).is_file(), where
        else:
            assert words[0] in OTHERS, where
    assert {"tuner", "make", "python"} <= seen


@pytest.mark.ray
def test_commands_of_ray_that_are_shown_exist() -> None:
    from ray.scripts.scripts import cli as ray

    shown = [(where, words[1:]) for where, words in shell_lines() if words[0] == "ray"]
    assert shown
    for where, words in shown:
        command: click.Command = ray
        words = list(itertools.takewhile(lambda word: word != ">", words))
        while isinstance(command, click.Group):
            name, *words = words
            command = command.commands[name]
        assert command.make_context(command.name, words), where


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_flags_in_the_text_exist(name: str) -> None:
    text = prose(ROOT / name)
    assert set(re.findall(r"`tuner ([a-z]+)", text)) <= set(cli.commands)
    for module in re.findall(r"`python -m ([a-z_.]+)", text):
        assert importlib.util.find_spec(module.rstrip(".")), module
    known = {o for c in (cli, *cli.commands.values()) for p in c.params for o in p.opts}
    known |= {"--help", "--compile-only", "--show"}  # of the files that are written
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)) <= known


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_and_flag_is_in_the_reference(name: str) -> None:
    command = cli.commands[name]
    arguments = [p.make_metavar(click.Context(command)) for p in command.params if is_argument(p)]
    text = section(" ".join([f"`tuner {name}", *arguments]) + "`")
    flags = {opt for p in command.params if not is_argument(p) for opt in p.opts}
    assert flags - {"--debug"} <= set(re.findall(r"`(--?[a-z0-9-]+)`", text))
    table = set(rows(" ".join([f"`tuner {name}", *arguments]) + "`"))
    assert table <= flags
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice):
            assert all(f"`{choice}`" in text for choice in parameter.type.choices)


def test_tables_of_flags_are_what_the_commands_say() -> None:
    text = REFERENCE.read_text()
    assert renew(text, cli.commands) == text
    assert renew(text.replace("Show every task.", "Nothing."), cli.commands) == text


def is_argument(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Argument)


def test_flags_of_the_group_are_in_the_reference() -> None:
    text = section("Commands")
    for parameter in cli.params:
        assert parameter.opts[0] in text


# ---- what --json prints ----

TASK = Task("key", "gemm", "{}", '{"kind":"llvm"}', 2.0, 4e6)
DEFAULT = Candidate(CandidateKind.TRACE, "[]", "test")
COUNTS = {"failures", "statuses", "spread", "samples", "instance", "utilisation", "counts"}
"""Objects whose own keys are data."""


def keys(value: dict[str, Any]) -> list[str]:
    """Paths of all keys, `tasks[].name` for those within lists."""
    found = []
    for key, inner in value.items():
        if isinstance(inner, dict) and key not in COUNTS:
            found += [f"{key}.{path}" for path in keys(inner)]
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            found += [f"{key}[].{path}" for path in keys(inner[0])]
        else:
            found.append(key)
    return found


def a_store() -> MemoryStore:
    store = MemoryStore()
    store.put(Tasks([TASK]), Defaults({TASK.key: DEFAULT.key}))
    return store


def a_snapshot() -> Snapshot:
    curve = (0.09e-3,) * 200
    conv = TaskView("key", "conv2d_relu", 8.0, 0.0, {Status.OK: 200}, 2.5e-3, 0.09e-3, curve)
    curve = (0.5e-3,) * 80
    dense = TaskView("other", "dense", 1.0, 0.0, {Status.OK: 80}, 4.0e-3, 0.5e-3, curve)
    return Snapshot(
        phase=Phase.DONE,
        elapsed_s=1200.0,
        time_budget_s=1200.0,
        trials_budget=960,
        trials_per_s=0.2,
        tasks=(conv, dense),
        utilisation={kind: {"busy": 1.0} for kind in (RUNNER, BUILDER, SPACE)},
    )


ONWARD = Onward(frozenset(cli.commands), lambda run, trials: f"tuner tune --run {run} ...")


def test_keys_of_tune() -> None:
    fruitless = SpaceView("mine", None, 3, 3, 3, (), None)
    snapshot = replace(a_snapshot(), spaces=(fruitless,))
    result = TuneResult(Path("run"), snapshot, "trials", (), "mlflow ui")
    assert [*keys(tune_report(result, ONWARD)), "parts"] == rows("JSON of `tune`")
    assert "parts" in tune_report(replace(result, parts=(result, result)), ONWARD)


def test_keys_of_tasks() -> None:
    assert keys(task_report("{}", [TASK])) == rows("JSON of `tasks`")


def test_keys_of_status() -> None:
    store = a_store()
    good, where = Measurement(Status.OK, (1.0,)), Provenance("w", "d", "tvm=1")
    store.append_many([(Record(Trial(TASK.key, DEFAULT), good, where), None)])
    assert keys(status_json(view_run(store))) == rows("JSON of `status`")


def test_keys_of_top() -> None:
    summary = RunSummary(name="x", state="at work")
    assert keys({"runs": [summary_json(summary)]}) == rows("JSON of `top`")


def test_what_workers_do_is_in_the_reference() -> None:
    said = set(rows("JSON of `status`: `utilisation`"))
    assert said == {STARTING, BUSY, WAITING, *map(str, Idle)}
    for kind in (RUNNER, BUILDER, SPACE):
        assert f"`{kind}`" in section("JSON of `status`: `utilisation`")


def test_keys_of_best() -> None:
    (best,) = best_schedules(a_store(), None, 4)
    assert keys({"tasks": [best.to_json()]}) == rows("JSON of `best`")


def test_keys_of_verify() -> None:
    trial, good = Trial(TASK.key, DEFAULT, (("T", 5),)), Measurement(Status.OK, (1.0,))
    claim = Claim(TASK, Record(trial, good), (), None)
    told = {"run": "run", "seed": 1, **judge([claim], [Seen()]).to_json()}
    assert keys(told) == rows("JSON of `verify`")
    for verdict in Verdict:
        assert f"`{verdict}`" in section("JSON of `verify`")


def test_keys_of_explain() -> None:
    loops, caches = (LoopOf(4, "serial", False),), (CacheUse("L1", 1, 0, 0, 0),)
    kernels = (Compiled("main", 1, 1, 0, 1, 1, 1.0, Mix(True, 1, {"FFMA": 1})),)
    said = Explanation({"knob": 1}, loops, kernels, 1, 1, 1.0, 1, caches, None, ())
    names = ("name", "weight", "default_ms", "latency_ms", "gflops", "space")
    row = {**dict.fromkeys(names), **said.to_json()}
    row = {k: list(v) if isinstance(v, tuple) else v for k, v in row.items()}
    assert keys({"precision": None, "tasks": [row]}) == rows("JSON of `explain`")


def test_keys_of_a_kernel_set() -> None:
    shape = ShapeTimes((("T", 5),), 1.0, 0, 1e-3, 1e-3, True)
    chosen = KernelSet((), Leaf(0), (1.0,), 1.0, (shape,), None, 0)
    assert keys(describe_set(TASK, chosen)) == rows("JSON of `best`: `kernel_set`")


def test_keys_of_bench() -> None:
    from spaces.deploy.bench import BenchResult

    result = BenchResult(1.0, 1.0, None, 0.0, 0.0, {"tuned": 0.0}, {"tuned": 1}, "untuned")
    report = {**result.to_json(), "shape": {"T": 5}, "shapes": []}
    assert keys(report) == rows("JSON of `bench`")


def test_keys_of_doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "cluster.app.console.doctor_checks.examine", lambda **_: iter([Finding("disk", "ok", "60")])
    )
    assert run(["doctor", "--json"]) == 0
    assert keys(json.loads(capsys.readouterr().out)) == rows("JSON of `doctor`")


def test_keys_of_a_record_and_its_statuses() -> None:
    written = replace(of_knobs({"rows": 6}, "kernel:a"), trace="[[],[]]")
    record = Record(Trial("key", written), Measurement(Status.OK, (1.0,)), predicted=Predicted())
    named = rows("JSON of a record")
    split = len(keys(record.to_json()))
    assert keys(record.to_json()) == named[:split]
    assert [str(status) for status in Status] == named[split:]


# ---- presets, and what MLflow is told ----


def test_efforts() -> None:
    table = [line for line in section("Efforts").splitlines() if line.startswith("| `")]
    assert table == [
        f"| `{name}` | {e.trials_per_task} | {e.time_budget_s / 60:g} min | {e.finalists} "
        f"| {e.finalist_share:.0%}".replace("%", " %")
        + " |"
        for name, e in EFFORTS.items()
    ]
    per_trial_s = EFFORTS["normal"].time_budget_s / EFFORTS["normal"].trials_per_task
    assert f"{per_trial_s:.0f} s each" in section("Efforts")
    for effort in EFFORTS.values():
        said = f"{effort.build_deadline_s:g} s and a kernel's loading, checking and timing "
        assert said + f"{effort.run_deadline_s:g} s" in section("Efforts").replace("\n", " ")
        assert f"It may take {effort.reference_deadline_s:g} s" in section(
            "How kernels are measured"
        )
        assert f"below {effort.gain_floor:.1%}".replace("%", " %") in section("Efforts")


def test_what_the_smallest_shape_may_lose() -> None:
    assert f"more than {SLOWER:.0%}".replace("%", " %") in section("Dynamic shapes")


def test_timing() -> None:
    def column(t: Timing) -> list[str]:
        spans = [f"{t.sample_s * 1e3:g} ms", f"{t.total_s * 1e3:g} ms"]
        ladder = [f"{t.cut:g} times", f"{t.near:g} times"]
        return [str(t.warmup_runs), *spans, str(t.min_samples), str(t.max_samples), *ladder]

    table = section("How kernels are measured").splitlines()
    cells = [line.strip("| ").split(" | ") for line in table if line.startswith("| ")][1:]
    for effort in EFFORTS.values():
        assert [c[1] for c in cells] == column(effort.timing)
        assert [c[2] for c in cells] == [*column(effort.finalist_timing)[:5], "-", "-"]


def test_metrics_and_artifacts(tmp_path: Path) -> None:
    shape = ShapeTimes((("T", 5),), 1.0, 0, 1e-3, 1e-3, True)
    good = Measurement(Status.OK, (0.5,))
    paths = TrackingPaths(tmp_path)
    with closing(SqliteStore(paths.store)) as store:
        store.put(Tasks([TASK]))
        observer = TrackingObserver(paths, store, name="run", params={})
        observer.on_start([TASK])
        observer.on_model(FittedModel(1, b"model", 8, 0.8, 0.1))
        for rung in (0, 1):
            store.append_many([(Record(Trial("key", DEFAULT, rung=rung), good), None)])
        observer.on_kernels("key", KernelSet((DEFAULT,), Leaf(0), (1.0,), 1.0, (shape,), 0.05, 3))
        observer.on_end(a_snapshot())
        observer.close(RunStatus.FINISHED)
    reader = RunReader(paths)
    reader.over = True
    reader.write_file(0)
    entries = [entry for item in reader.after(Position(), 99) for entry in item.entries]
    text = section("MLflow")
    named = {name for line in text.splitlines() for name in re.findall("`([a-z_/]+)`", line)}
    values = {name for e in entries if isinstance(e, Metrics) for name in e.values}
    assert {name for name in values if not name.startswith("trials_failed/")} <= named
    assert "trials_failed/STATUS" in text
    groups = {name.partition("/")[0] for name in named if "/" in name}
    assert groups >= {name.partition("/")[0] for name in values}
    files = {path.name for path in paths.files.iterdir()}
    assert {"records", "cost_model", "kernels"} <= files
    assert all(f"`{name}" in text for name in files)


PLACES = {"reference": REFERENCE, "fleet": ROOT / "docs" / "fleet.md"}
WORDS = {"half": 0.5, "quarter": 0.25, "fifth": 0.2, "tenth": 0.1, "twice": 2.0, "two": 2.0}
WORDS |= {"three": 3.0, "four": 4.0, "eight": 8.0, "ten": 10.0, "a": 1.0, "an": 1.0, "of": 1.0}
WORDS |= {"us": 1e-6, "ms": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0}


def quantity(text: str) -> float:
    """What words of the docs stand for: "20 ms", "three minutes", "a quarter of an hour"."""
    return math.prod(
        WORDS.get(w) or WORDS.get(w.removesuffix("s")) or float(w) for w in text.split()
    )


@pytest.mark.parametrize(
    ("doc", "sentence", "module", "name"),
    [
        (
            "fleet",
            "asks the autoscaler for one and waits ~ ~, or",
            "tuner.request.options",
            "DEVICE_WAIT_S",
        ),
        ("reference", "Every task gets ~ trials", "tuner.session.allocation", "_FIRST_TRIALS"),
        ("reference", "At most ~ of a task's shapes", "tuner.dynamic.shapes", "MEASURED_SHAPES"),
        (
            "reference",
            "within ~ times of the slowest",
            "tuner.session.ending.finalists",
            "_CONTENDER",
        ),
        ("reference", "within ~ to 1.2 times", "tuner.session.ending.finalists", "LEAST_NOISE"),
        (
            "reference",
            "shapes, where they take less than ~ ~, the kernel",
            "tuner.search.dynamic.specialization",
            "_SHORT_S",
        ),
        ("reference", "of the ~ fastest shapes", "tuner.search.dynamic.specialization", "_MOST"),
        (
            "reference",
            "A copy that takes at most ~ of the time",
            "tuner.search.dynamic.specialization",
            "_GAIN",
        ),
        ("reference", "by more than ~ standard", "tuner.search.dynamic.kernel_search", "_DOUBTED"),
        (
            "reference",
            "standard deviations, and by ~ ~,",
            "tuner.search.dynamic.kernel_search",
            "_LEAST_DOUBTED",
        ),
        ("reference", "at most ~ records each", "tuner.storage.segments.format", "MOST_RECORDS"),
        (
            "reference",
            "takes more than ~ ~ ~ is checked on one draw",
            "actors.run_child",
            "_BOTH_S",
        ),
        ("reference", "run is slower than ~ the limit", "spaces.devices.ladder", "_HOPELESS"),
        (
            "reference",
            "the limit, and than ~ ~, is not run again",
            "spaces.devices.ladder",
            "_HOPELESS_FLOOR_S",
        ),
        ("reference", "as long as ~ samples", "spaces.devices.ladder", "_SINGLY"),
        ("reference", "slower than ~ times that limit", "actors.runner", "_HOPELESS"),
        (
            "reference",
            "takes more than ~ ~ ~ ~ ~ is not timed",
            "actors.runner",
            "_HOPELESS_FLOOR_S",
        ),
        ("reference", "The ~ best schedules of an equal task", "tuner.search.transfer", "_EACH"),
        (
            "fleet",
            "as long as ~ trials are left",
            "cluster.scaling.scaling_policy",
            "_TRIALS_PER_RUNNER",
        ),
        (
            "fleet",
            "at most one for ~ trials that are left",
            "cluster.scaling.scaling_policy",
            "_TRIALS_PER_BUILDER",
        ),
        (
            "fleet",
            "If no machine has come after ~ ~,",
            "cluster.scaling.scaling_policy",
            "_PATIENCE_S",
        ),
        (
            "fleet",
            r"as large as it may be, for ~ ~ ~ ~ ~\.",
            "cluster.scaling.scaling_policy",
            "_FULL_S",
        ),
        ("fleet", "~ ~ ~ passes, then runners", "cluster.scaling.scaling_policy", "_LET_GO_S"),
        ("reference", r"with a snapshot about every ~ ~\)", "cluster.app.tune", "_WATCH_S"),
        ("fleet", "sign of life at least every ~ ~,", "cluster.ray_workers.ray_pool", "BEAT_S"),
        ("reference", "take turns for ~ rounds", "spaces.deploy.bench", "MIN_ROUNDS"),
    ],
)
def test_what_the_docs_say_in_words_is_what_the_program_has(
    doc: str, sentence: str, module: str, name: str
) -> None:
    """The docs have a figure, `~ ~` in the sentence, and the program: it stands nowhere else."""
    figure = re.search(r"~(?: ~)*", sentence)
    assert figure
    pattern = sentence.replace(figure[0], f"({figure[0].replace('~', '[^ ,]+')})")
    (said,) = set(re.findall(pattern, " ".join(PLACES[doc].read_text().split())))
    assert quantity(said) == pytest.approx(number(module, name))


def number(module: str, name: str) -> float:
    """A module's constant, read without what importing it takes."""
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            left = target.elts if both else [target]  # type: ignore[attr-defined]
            right = node.value.elts if both else [node.value]  # type: ignore[attr-defined]
            for one, value in zip(left, right, strict=True):
                if isinstance(one, ast.Name) and one.id == name:
                    return float(ast.literal_eval(value))
    raise AssertionError(f"{module} has no {name}")


def test_files_of_a_run_folder() -> None:
    run = RunFolder(Path("run"))
    names = [name for name, kind in vars(RunFolder).items() if isinstance(kind, property)]
    tops = {getattr(run, name).relative_to(run.root).parts[0] for name in names}
    assert tops == {name.rstrip("/") for name in rows("The run folder")}


def test_the_demo_takes_as_long_as_it_says() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "\nDEMO_BUDGET ?= 10m\n" in makefile
    assert "--time-budget $(DEMO_BUDGET)" in makefile
    assert "tunes squeezenet for at most 10 minutes" in (ROOT / "README.md").read_text()


def shown_output(beginning: str) -> str:
    """The block of output in the docs that begins so."""
    (found,) = [b.text for b in blocks("text") if b.text.lstrip().startswith(beginning)]
    return found


def test_the_demo_ends_as_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "demo.json").read_text())
    samples = dict.fromkeys(("untuned", "tuned", "onnxruntime"), "...")
    bench_report({**result, "samples": samples})
    printed = capsys.readouterr().out
    record = f"The record of the search: {open_command(Path('runs/demo'))}\n"
    assert shown_output("latency") == printed + record


def test_a_run_ends_as_the_readme_shows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("runs/mine")
    run.mkdir(parents=True)
    RunFolder(run).report.touch()
    tune_summary(TuneResult(run, a_snapshot(), "time", (), open_command(run)), ONWARD)
    assert shown_output("The time budget") == capsys.readouterr().out.lstrip()


def test_metrics_of_a_fleet() -> None:
    source = (ROOT / "cluster" / "ray_workers" / "metrics.py").read_text()
    made = set(re.findall(r'_(?:gauge|histogram)\(\s*"(\w+)"', source))
    fleet = (ROOT / "docs" / "fleet.md").read_text()
    assert made
    assert {f"ray_tuner_{name}" for name in made} == set(re.findall(r"`(ray_tuner_\w+)`", fleet))


WRITES_FILES = {"export", "restore", "report", "reproduce", "grafana"}
WRITES_SCRIPTS = {"completion"}


def test_commands_whose_answer_a_program_will_read_take_json() -> None:
    flags = {n: {o for p in c.params for o in p.opts} for n, c in cli.commands.items()}
    assert all("--debug" in known for known in flags.values())
    assert {name for name, known in flags.items() if "--json" not in known} == (
        WRITES_FILES | WRITES_SCRIPTS
    )
    for name in flags:
        assert run([name, "--help"]) == 0
