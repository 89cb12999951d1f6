"""What TVM refuses is passed over; a mistake of ours is not."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from spaces.frontends.model import load_model
from spaces.ir import guard
from spaces.ir.guard import STRICT, Unsuitable, is_refusal, refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.templates.registry import templates_of
from tuner.request.model_spec import ModelSpec
from tuner.task import Task

pytestmark = pytest.mark.tvm

EXAMPLES = Path(__file__).parents[3] / "examples"
LLVM = '{"kind":"llvm","mcpu":"icelake-server","num-cores":2}'
CUDA = '{"kind":"cuda","arch":"sm_90","max_shared_memory_per_block":49152,"max_num_threads":1024}'


def task(target: str = LLVM, **dims: tuple[int, ...]) -> Task:
    """A matrix product, symbolic or not."""
    args = (("m", 32), ("n", 32), ("k", 32))
    open_args = tuple(pair for pair in args if pair[0].upper() not in dims)
    spec = ModelSpec(f"{EXAMPLES}/gemm.py:gemm", args=open_args, dims=tuple(dims.items()))
    model = load_model(spec)
    (found,) = extract(lower(model.module, target), target, None, model.shapes)
    return found


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_told", set())


def raised(function: Any, *args: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        function(*args)
    assert isinstance(caught.value, Exception)
    return caught.value


def test_what_tvm_throws_is_a_refusal() -> None:
    schedule = new_schedule(task_module(task().module))
    block = schedule.get_sblock("C")
    loop = schedule.get_loops(block)[0]
    for primitive, arguments in (
        (schedule.compute_inline, (block,)),
        (schedule.reorder, (loop, loop)),
        (schedule.get_sblock, ("nosuch",)),
        (schedule.mod.__getitem__, ("nosuch",)),
    ):
        assert is_refusal(raised(primitive, *arguments))
    assert is_refusal(Unsuitable("not this one"))


def test_what_we_did_wrong_is_none_wherever_it_comes_up() -> None:
    import tvm
    import tvm_ffi

    schedule = new_schedule(task_module(task().module))
    function = schedule.mod["main"]

    def called_back(_: Any) -> Any:
        return {}["a key that is not there"]

    for attempt, arguments in (
        (schedule.vectorize, (3,)),
        (lambda: schedule.mod.nosuch, ()),
        (tvm.tirx.Add, ("x", object())),
        (tvm_ffi.structural_walk, (function, (tvm.ir.Var, called_back))),
        (lambda: min([]), ()),
    ):
        assert not is_refusal(raised(attempt, *arguments))


def test_a_refusal_is_logged_once_for_each_task(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for name in ("one", "one", "two"):
            with refusals(f"the template, {name}"):
                raise Unsuitable("its loops are no plain ones")
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"the template, {n}: its loops are no plain ones" for n in ("one", "two")]


MATCHING = {
    "contraction.template.describe": task,
    "contraction.template.product_of": task,
    "memory.template.stages_of": task,
    "plain_loops._points": lambda: task(M=(1, 8)),
    "products.template.find_product": lambda: task(CUDA, M=(1, 8)),
}


@pytest.mark.parametrize("place", MATCHING)
def test_a_mistake_in_matching_surfaces_in_tests_and_is_told_to_all_elsewhere(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import importlib

    module, _, name = place.rpartition(".")
    where = importlib.import_module(f"spaces.templates.{module}")

    def mistaken(*_: Any, **__: Any) -> Any:
        raise IndexError("a mistake of ours")

    monkeypatch.setattr(where, name, mistaken)
    # Plain loops are matched last, where no other template has the program.
    match: Any = where.plain_loops if module == "plain_loops" else templates_of
    found = MATCHING[place]()
    with pytest.raises(IndexError, match="a mistake of ours"):
        match(found)

    monkeypatch.delenv(STRICT)
    match(found)
    match(found)
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(told) == 1
    assert "a defect of tuner, IndexError: a mistake of ours" in told[0]
    assert found.name in told[0]
