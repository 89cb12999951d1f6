"""Libraries against what other passes put in, and what is exported of a run that one has won."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from benchmarks.proposals import TARGET as ON_GPU
from cluster.app.cli import run as command
from cluster.app.driver.export import ExternalSymbols, bench_here, export_library
from spaces.libraries.offers import offers
from tests.cluster.app.passes.made_run import made_run
from tests.cluster.app.passes.network import left_alone
from tests.spaces.libraries import cumsum as libraries
from tests.spaces.libraries.cumsum import Raises, Sums, Wrong, cumsum
from tuner.candidate import Candidate
from tuner.errors import TunerError, UsageError
from tuner.task import Task
from tuner.user_code.find import find_layer

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

TARGET = '{"kind":"llvm","num-cores":1}'
FILE = libraries.__file__


def small(name: str) -> Any:
    """A program that a library needs longer for to be called than a kernel to run."""
    from examples.gemm import gemm

    return gemm(m=4, n=4, k=4).with_attr("global_symbol", name)


@pytest.fixture(scope="module")
def module() -> Any:
    import tvm

    return tvm.IRModule({"sums": cumsum(name="sums"), "small": small("small")})


def test_the_faster_of_both_is_put_in_and_it_says_by_how_much(module: Any) -> None:
    import tvm

    from examples.numpy_blas import NumpyBlas

    contest = tuner.passes.LibraryDispatch(Sums, NumpyBlas, target=TARGET)
    done = contest(module)
    found = tuner.passes.origins(done)
    assert (found["sums"].how, found["sums"].source) == ("library", "Sums")
    assert "times as long" in found["sums"].why
    assert found["sums"].latency_s is not None
    assert found["small"].how == "default"
    assert found["small"].latency_s is not None
    assert list(contest.missed) == ["small"]
    assert contest.missed["small"].startswith("NumpyBlas took ")

    tuner.passes.register(Sums)
    target = tvm.target.Target(json.loads(TARGET))
    built = tvm.compile(done, target=target, tir_pipeline=tuner.tir_pipeline(target))
    x = np.random.default_rng(0).normal(size=(8, 1024)).astype(np.float32)
    given, y = tvm.runtime.tensor(x), tvm.runtime.empty((8, 1024), "float32")
    built["sums"](given, y)
    np.testing.assert_allclose(y.numpy(), np.cumsum(x, axis=1), rtol=1e-3, atol=1e-3)


@pytest.mark.long
def test_numpys_blas_takes_a_product_from_a_program_that_nobody_scheduled() -> None:
    import tvm

    from examples.gemm import gemm
    from examples.numpy_blas import NumpyBlas

    product = tvm.IRModule({"gemm": gemm(m=192, n=192, k=192)})
    contest = tuner.passes.LibraryDispatch(NumpyBlas, target=TARGET, against=[left_alone()])
    done = contest(product)
    origin = tuner.passes.origins(done)["gemm"]
    assert (origin.how, origin.source, contest.missed) == ("library", "NumpyBlas", {})
    tuner.passes.register(NumpyBlas)
    target = tvm.target.Target(json.loads(TARGET))
    built = tvm.compile(done, target=target, tir_pipeline=tuner.tir_pipeline(target))
    a, b = np.random.default_rng(0).normal(size=(2, 192, 192)).astype(np.float32)
    c = tvm.runtime.empty((192, 192), "float32")
    built["gemm"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("library", "said"),
    [
        (Wrong, "Wrong: output sums"),
        pytest.param(Raises, "Raises: .*out of sums", marks=pytest.mark.long),
    ],
)
def test_one_that_is_wrong_or_fails_has_lost(module: Any, library: Any, said: str) -> None:
    import re

    contest = tuner.passes.LibraryDispatch(library, target=TARGET, against=[left_alone()])
    found = tuner.passes.origins(contest(module))
    assert {origin.how for origin in found.values()} == {"none"}
    assert re.search(said, contest.missed["sums"]), contest.missed


def test_where_kernels_do_not_run_nothing_is_said_to_be_faster(module: Any) -> None:
    contest = tuner.passes.LibraryDispatch(Sums, target=ON_GPU, against=[left_alone()])
    assert tuner.passes.origins(contest(module))["sums"].how == "none"
    assert "cannot be timed on this machine" in contest.missed["sums"]


def test_a_library_at_fault_is_an_error_that_names_its_line(module: Any, tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text("class Odd:\n    def symbol(self, program):\n        return oh\n")
    contest = tuner.passes.LibraryDispatch(f"{file}:Odd", target=TARGET)
    with pytest.raises(TunerError, match=r"odd\.py:3: NameError"):
        contest(module)
    with pytest.raises(UsageError, match="name a library"):
        tuner.passes.LibraryDispatch(target=TARGET)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two programs; a library's function is the fastest of one."""
    made = tmp_path_factory.mktemp("library")
    text = """
def network():
    import tvm
    from tests.cluster.app.passes.test_library_dispatch import cumsum, small
    return tvm.IRModule({"sums": cumsum(4, 64, "sums"), "small": small("small")})
"""

    def faster(task: Task) -> Candidate | None:
        return next(
            iter(offers([find_layer(FILE, "libraries")], [task]).candidates.values()), [None]
        )[0]

    return made_run(made, text, TARGET, faster)


def test_a_library_with_outside_symbols_is_written_only_where_that_is_allowed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import tvm

    with pytest.raises(ExternalSymbols, match=r"the best of sums calls sums\.cumsum of Sums"):
        export_library(run, tmp_path / "network.so")
    assert command(["export", str(run), "--lib", str(tmp_path / "network.so")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "network.so").exists()
    allowed = ["export", str(run), "--lib", str(tmp_path / "network.so"), "--allow-external"]
    assert command(allowed) == 0
    assert "it calls sums.cumsum, which Sums must register" in capsys.readouterr().out
    tuner.passes.register(Sums)
    loaded = tvm.runtime.load_module(str(tmp_path / "network.so"))
    x = np.arange(256, dtype=np.float32).reshape(4, 64)
    given, y = tvm.runtime.tensor(x), tvm.runtime.empty((4, 64), "float32")
    loaded["sums"](given, y)
    np.testing.assert_allclose(y.numpy(), np.cumsum(x, axis=1), rtol=1e-4)


def test_a_database_has_the_best_kernel_instead_and_says_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["export", str(run), "--database", str(tmp_path)]) == 0
    assert (
        "sums: a library's function, or a program that is no schedule, is faster there"
        in capsys.readouterr().out
    )
    records = (tmp_path / "database_tuning_record.json").read_text().splitlines()
    assert records
    assert any("[4,64]" in record for record in records), "its best kernel is there"


@pytest.mark.usefixtures("bench_without_pauses")
def test_the_model_is_timed_with_the_library_that_it_calls(run: Path) -> None:
    with pytest.raises(TunerError, match=r"sums\.cumsum of Sums: name its file with --library"):
        bench_here(run)
    report = bench_here(run, libraries=[FILE])
    assert report["max_rel_err"] < 1e-3


def test_it_is_applied_and_shown_as_what_it_is(
    run: Path, module: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    import tvm

    own = tvm.IRModule({"sums": cumsum(4, 64, "sums"), "small": small("small")})
    found = tuner.passes.origins(tuner.passes.ApplyBest(run, target=TARGET)(own))
    assert (found["sums"].how, found["small"].how) == ("library", "tuned")
    assert found["sums"].why.startswith("Sums was faster")
    assert command(["best", str(run), "--task", "sums"]) == 0
    assert "# no schedule: it calls sums.cumsum of Sums" in capsys.readouterr().out
