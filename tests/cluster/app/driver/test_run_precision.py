"""A run with a precision: begun, gone on with, refused; and what is made of it means the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.app.cli import run as cli
from cluster.app.driver.export import apply_to, bench_here, export_library
from cluster.app.driver.prepare import prepare
from spaces.codegen.executable import LoadedModel, compile_module
from spaces.frontends.model import load_model
from spaces.precision.choose import choose_precision
from spaces.precision.convert import in_precision
from spaces.targets.target import resolve_target
from tests.cluster.app.passes.made_run import best_estimate, made_run
from tuner.errors import TunerError, UsageError
from tuner.precision import Precision
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.folder import read_run

pytestmark = pytest.mark.tvm

NETWORK = """
import numpy as np
from tvm import relax

def network():
    rng = np.random.default_rng(0)
    a, b = (relax.const((rng.standard_normal((64, 64)) / 8).astype("float32")) for _ in range(2))
    x = relax.Var("x", relax.TensorType((16, 64), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, a))))
            out = builder.emit_output(relax.op.matmul(hidden, b))
        builder.emit_func_output(out)
    return builder.get()
"""


@pytest.fixture
def spec(tmp_path: Path) -> ModelSpec:
    (tmp_path / "network.py").write_text(NETWORK)
    return ModelSpec(f"{tmp_path}/network.py:network")


Begin = Callable[..., Any]


@pytest.fixture
def begin(spec: ModelSpec, tmp_path: Path) -> Begin:
    def do(**said: Any) -> Any:
        options = TuneOptions(spec, target="llvm", **said)
        return prepare(options, RunLocation.of(tmp_path / "run"))

    return do


def test_a_run_keeps_what_it_began_with(
    begin: Begin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = begin(precision="int8", calibrate="drawn")
    assert "tuner: precision int8; rows scaled by the ranges of" in capsys.readouterr().err
    kept = read_run(tmp_path / "run")[1].precision
    assert kept is not None
    assert kept == job.precision
    assert kept.ranges
    assert kept.error is not None
    assert job.facts["precision"] == "int8"
    assert job.facts["relative_error"] == kept.error.relative
    again = begin()
    assert again.precision == kept
    assert [task.key for task in again.tasks] == [task.key for task in job.tasks]
    with pytest.raises(TunerError, match="was begun with --precision int8, not bf16"):
        begin(precision="bf16")
    with pytest.raises(TunerError, match=r"^--precision int8: the relative error .* allows 1e-06"):
        begin(max_error=1e-6)


def test_as_it_is_nothing_is_said(
    begin: Begin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert begin(precision="as-is").precision is None
    assert read_run(tmp_path / "run")[1].precision is None
    assert "precision" not in capsys.readouterr().err
    with pytest.raises(TunerError, match="was begun with --precision as-is, not f16"):
        begin(precision="f16")


def test_a_larger_error_makes_no_run(begin: Begin, tmp_path: Path) -> None:
    with pytest.raises(TunerError, match=r"int4: the relative error is 0\.\d+, and .* 0\.001"):
        begin(precision="int4", max_error="0.1%")
    assert not (tmp_path / "run").exists()
    assert begin(precision="int4", max_error="50%").precision.name == "int4"


@pytest.mark.parametrize("said", [{"max_error": 0.1}, {"calibrate": "drawn"}])
def test_what_is_said_of_no_precision_is_refused(begin: Begin, said: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="the model keeps its types"):
        begin(**said)


@pytest.mark.parametrize("name", ["bf16", "int8", "int4"])
def test_what_is_made_of_a_run_multiplies_as_it_does(
    spec: ModelSpec, tmp_path: Path, name: str
) -> None:
    model, target = load_model(spec), resolve_target("llvm")
    chosen = choose_precision(model, name, target, (), "drawn" if name == "int8" else None)
    run = made_run(tmp_path, NETWORK, target, _best, precision=chosen)
    x = np.random.default_rng(1).standard_normal((16, 64)).astype("float32")
    want = _run(in_precision(model, chosen).module, target, x)
    whole = _run(model.module, target, x)
    assert np.abs(want - whole).max() > 1e-4
    export_library(run, tmp_path / "model.so")
    for got in (_run_library(tmp_path / "model.so", x), _run(apply_to(run), target, x)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    given = _run(apply_to(run, model.module), target, x)
    np.testing.assert_allclose(given, want, rtol=1e-4, atol=1e-5)
    report = bench_here(run, rounds=1)
    assert report["max_abs_err"] < 1e-4, "both sides are of one graph"


def _best(task: Any) -> Any:
    from spaces.templates.registry import templates_of

    return best_estimate(task) if templates_of(task) else None


def _run(module: Any, target: str, x: Any) -> Any:
    from spaces.lowering.lower import lower

    return LoadedModel(compile_module(lower(module, target), target), [x]).outputs()[0]


def _run_library(path: Path, x: Any) -> Any:
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def test_ranges_are_of_the_runs_own_model(spec: ModelSpec, tmp_path: Path) -> None:
    target = resolve_target("llvm")
    known = Precision("int8", "int8", ranges=((-1.0, 1.0), (0.0, 1.0)))
    run = made_run(tmp_path, NETWORK, target, _best, precision=known)
    other = tmp_path / "other.py"
    other.write_text(NETWORK.replace("default_rng(0)", "default_rng(1)"))
    module = load_model(ModelSpec(f"{other}:network")).module
    with pytest.raises(TunerError, match="scaled by the ranges of its own model"):
        apply_to(run, module)


def test_a_run_tells_it(
    spec: ModelSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    target = resolve_target("llvm")
    chosen = choose_precision(load_model(spec), "f16", target, (), None)
    run = made_run(tmp_path, NETWORK, target, _best, precision=chosen)
    assert cli(["status", str(run), "--json"]) == 0
    told = capsys.readouterr()
    assert "tuner: note: precision f16; largest error" in told.err
    assert chosen.error is not None
    said = json.loads(told.out)["precision"]
    assert (said["name"], said["error"]["relative"]) == ("f16", chosen.error.relative)
    assert cli(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert f"relative {chosen.error.relative:.3g}" in page
