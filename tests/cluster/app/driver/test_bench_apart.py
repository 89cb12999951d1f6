"""What `tuner bench` does about kernels that may crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.app.cli import run as command
from cluster.app.driver.export import bench_here
from tests.cluster.app.passes.made_run import made_run
from tuner.errors import TunerError
from tuner.process.apart import apart

pytestmark = pytest.mark.tvm

TARGET = '{"kind":"llvm","num-cores":1}'
TEXT = """
from tvm import te

def network():
    a = te.placeholder((8, 4), "int32", "a")
    b = te.placeholder((8, 4), "int32", "b")
    divided = te.compute((8, 4), lambda i, j: te.floordiv(a[i, j], b[i, j]{less}), "divided")
    return te.create_prim_func([a, b, divided])
"""


def made(folder: Path, less: str) -> Path:
    return made_run(folder, TEXT.format(less=less), TARGET, lambda _: None)


@pytest.mark.usefixtures("bench_without_pauses")
def test_no_zero_is_drawn_to_divide_by(tmp_path: Path) -> None:
    assert bench_here(made(tmp_path, ""))["max_abs_err"] == 0


STRIDED = """
from tvm.ir import IRModule
from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def strided(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (8, 4), "float32", strides=(8, 1))
    B = T.match_buffer(b, (8, 4), "float32")
    for i, j in T.grid(8, 4):
        B[i, j] = A[i, j]

@T.prim_func(s_tir=True)
def plain(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (8, 4), "float32")
    B = T.match_buffer(b, (8, 4), "float32")
    for i, j in T.grid(8, 4):
        B[i, j] = A[i, j]

network = IRModule({"strided": strided, "plain": plain})
"""


def test_a_program_that_no_tensor_fits_is_refused_in_a_line(tmp_path: Path) -> None:
    run = made_run(tmp_path, STRIDED, TARGET, lambda _: None)
    with pytest.raises(TunerError, match="strided cannot be timed: A has the strides 8, 1, and"):
        bench_here(run)


def test_a_kernel_that_crashes_is_told_in_a_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path, " - 1 + a[i, j] * 0")
    assert command(["bench", str(run)]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(
        f"tuner: the process that runs the kernels of {run} was lost (killed by SIGFPE, as by a "
        "division by zero: give values with --input when the model is tuned); what it printed is in"
    )
    assert err.count("\n") == 1
    Path(err.split()[-1]).unlink()


def echo(value: str, *, twice: bool) -> str:
    print("aside")
    if not value:
        raise TunerError("nothing to say")
    return value * (1 + twice)


def test_a_call_apart_returns_or_raises_what_the_function_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = f"{__name__}:echo"
    assert apart(here, "a", what="echoes", twice=True) == "aa"
    assert "aside" in capsys.readouterr().err
    with pytest.raises(TunerError, match="nothing to say"):
        apart(here, "", what="echoes", twice=True)
    with pytest.raises(RuntimeError, match="TypeError"):
        apart(here, "", what="echoes")
