"""Kernels of a large program are compared with the first one that seems right, in any child."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.judged_kernels import JudgedKernels
from actors.run_child import RunChild
from spaces.check.sampled_case import SampledCase
from tuner.task import Task

TARGET = '{"kind":"llvm","num-cores":1}'
N = 96


def program(spoilt_row: int = -1, backwards: bool = False) -> Any:
    """Sums of products; of one row, if any, of which 1 is added to."""
    import tvm
    from tvm import te, tirx

    a, b = (te.placeholder((N, N), name=name) for name in "ab")
    k = te.reduce_axis((0, N), "k")

    def term(i: Any, j: Any) -> Any:
        at = N - 1 - k if backwards else k
        return te.sum(a[i, at] * b[at, j], k)

    product = te.compute((N, N), term, name="product")
    off = te.compute(
        (N, N),
        lambda i, j: product[i, j] + tirx.Select(i == spoilt_row, 1.0, 0.0).astype("float32"),
        name="off",
    )
    return tvm.IRModule({"main": te.create_prim_func([a, b, off])})


def artifact(spoilt_row: int = -1, backwards: bool = False) -> bytes:
    from spaces.codegen.artifact import build_artifact

    return build_artifact(program(spoilt_row, backwards), TARGET)


@pytest.fixture(scope="module")
def task() -> Task:
    import tvm

    return Task("judged", "judged", tvm.ir.save_json(program()), TARGET)


class Child:
    """A child that knows some elements of each draw."""

    def __init__(self, scratch: Path, task: Task) -> None:
        self._child, self._task = RunChild(TARGET, None, scratch), task
        self._child.learn(task, ())

    def error(self, kernel: bytes) -> str:
        return self._child.prepare(self._task.key, (), kernel).error

    def unknown_row(self) -> int:
        """A row of which no element is known, on any draw."""
        known: set[int] = set()
        for case in self._child._references[self._task.key, ()].cases:
            assert isinstance(case, SampledCase)
            known |= set(case._samples[2].places[0].tolist())
        return min(set(range(N)) - known)


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spaces.check.choice.QUICK_STEPS", 0)
    monkeypatch.setattr("spaces.check.sampled_program._MOST", (64,))


@pytest.mark.tvm
def test_a_kernel_is_wrong_where_it_differs_from_a_right_one(tmp_path: Path, task: Task) -> None:
    child = Child(tmp_path, task)
    row = child.unknown_row()
    assert child.error(artifact()) == ""
    assert f"({row}, " in child.error(artifact(row)), "it says where"
    assert child.error(artifact(backwards=True)) == ""


@pytest.mark.tvm
def test_the_first_kernel_is_wrong_from_when_a_right_one_differs(
    tmp_path: Path, task: Task
) -> None:
    child = Child(tmp_path, task)
    row = child.unknown_row()
    faulty = artifact(row)
    assert child.error(faulty) == child.error(faulty) == "", "nothing shows it"
    assert child.error(artifact()) == ""
    assert f"({row}, " in child.error(faulty)
    assert child.error(artifact(backwards=True)) == ""


@pytest.mark.tvm
def test_another_child_compares_with_the_same_kernel(tmp_path: Path, task: Task) -> None:
    first = Child(tmp_path, task)
    row = first.unknown_row()
    assert first.error(artifact()) == ""
    second = Child(tmp_path, task)
    assert f"({row}, " in second.error(artifact(row))
    assert f"({row}, " in Child(tmp_path, task).error(artifact(row))


@pytest.mark.tvm
def test_a_kernel_that_was_wrong_after_all_is_not_compared_with_in_another_child(
    tmp_path: Path, task: Task
) -> None:
    first = Child(tmp_path, task)
    faulty = artifact(first.unknown_row())
    assert first.error(faulty) == ""
    assert first.error(artifact()) == ""
    assert Child(tmp_path, task).error(faulty) != ""


@pytest.mark.tvm
def test_a_kernel_that_is_wrong_on_one_draw_is_compared_with_on_none(
    tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child(tmp_path, task)
    cases = child._child._references[task.key, ()].cases
    monkeypatch.setattr(
        type(cases[1]), "wrong", lambda case, *_: "off" if case is cases[1] else None
    )
    assert child.error(artifact()) == "output off: off"
    assert [case.whole for case in cases] == [None, None]
    assert JudgedKernels(tmp_path / "references").take("judged") is None


def test_an_artifact_that_is_taken_is_there_no_longer(tmp_path: Path) -> None:
    """Should it end the child that runs it, others do not end by it."""
    kept = JudgedKernels(tmp_path / "folder")
    assert kept.take("seed") is None
    kept.put("seed", b"one")
    kept.put("seed", b"two")
    assert kept.take("seed") == b"two"
    assert kept.take("seed") is None
    assert [*(tmp_path / "folder").iterdir()] == []


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    kept = JudgedKernels(tmp_path / "file")
    kept.put("seed", b"one")
    assert kept.take("seed") is None
