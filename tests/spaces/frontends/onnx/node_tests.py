"""ONNX's own tests of its operators, from the installed package: models of one node with values."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx

from spaces.codegen.executable import compile_plainly
from spaces.frontends.declared import resolve
from spaces.frontends.onnx.model import read_onnx_proto
from spaces.ir.element_types import eps_of
from spaces.lowering.lower import lower
from tests.spaces.frontends.onnx.beside_onnxruntime import TARGET, Array
from tuner.dynamic.shapes import NO_DOMAIN
from tuner.errors import TunerError, first_line
from tuner.process.child import Child
from tuner.process.outcome import Returned

Kind: TypeAlias = Literal["right", "wrong", "refused", "crashed"]
_QUICK = '{"kind":"llvm","num-cores":1,"opt-level":0}'
_START_S = 120.0
_EACH_S = 60.0
_STEPS = 2
"""Of half precision."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one test.

    Attributes:
        why: one line; empty where it is right.
    """

    name: str
    kind: Kind
    why: str = ""


@cache
def cases() -> Mapping[str, Any]:
    """All of ONNX's tests of nodes, by name. It takes seconds: their values are calculated."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of the values overflow
        return {case.name: case for case in load_model_tests(kind="node")}


def drawn(share: float, seed: int) -> list[str]:
    """The names of a share of all tests."""
    names = sorted(cases())
    return sorted(random.Random(seed).sample(names, round(share * len(names))))


def result(name: str) -> Result:
    """Import, lower, compile and run the model of one test, all sets of its values."""
    case = cases()[name]
    try:
        return Result(name, *_judged(case))
    except TunerError as error:
        return Result(name, "refused", str(error))
    except Exception as error:
        return Result(name, "crashed", f"{type(error).__name__}: {first_line(error)}")


def _judged(case: Any) -> tuple[Kind, str]:
    import tvm

    sets = [tuple([*map(value_of, side)] for side in values) for values in case.data_sets]
    source = read_onnx_proto(case.model, case.name)
    shapes = [*_open_shapes(case.model.graph.input, sets[0][0])]
    imported = source.imported(resolve(source.declared, shapes, NO_DOMAIN), NO_DOMAIN)
    library = compile_plainly(lower(imported, TARGET), _QUICK).library
    machine = tvm.relax.VirtualMachine(library, tvm.cpu())
    for given, wanted in sets:
        if not all(isinstance(value, np.ndarray) for value in [*given, *wanted]):
            return "wrong", "it was imported, but its values are no tensors"
        found = machine["main"](*map(tvm.runtime.tensor, given))
        tensors = [found] if hasattr(found, "numpy") else [*found]
        for place, (got, want) in enumerate(zip(tensors, wanted, strict=True)):
            if why := _difference(got.numpy(), want, case.rtol, case.atol):
                return "wrong", f"output {place}: {why}"
    return "right", ""


def value_of(value: Any) -> Any:
    """A tensor as an array; sequences and optionals as they are."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _open_shapes(inputs: Any, given: Sequence[Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The shapes of inputs that say none, or not all of it."""
    for value, array in zip(inputs, given, strict=True):
        tensor = value.type.tensor_type
        known = tensor.HasField("shape") and all(d.dim_value for d in tensor.shape.dim)
        if isinstance(array, np.ndarray) and not known:
            yield value.name, array.shape


def _difference(got: Array, want: Array, rtol: float, atol: float) -> str:
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype} of {got.shape} instead of {want.dtype} of {want.shape}"
    if want.dtype.kind in "biu":
        same = got == want
    else:
        # Their tolerances are less than a step of half precision, to which each side rounds.
        if want.dtype.itemsize == 2:
            rtol = max(rtol, _STEPS * eps_of(str(want.dtype)))
        a, b = got.astype("float64"), want.astype("float64")
        same = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if np.all(same):
        return ""
    apart = ~same
    return f"{apart.sum()} of {apart.size} differ: {got[apart][:3]} instead of {want[apart][:3]}"


class Runner:
    """Runs tests in a process of its own."""

    def __init__(self) -> None:
        cases()

    def result(self, name: str) -> tuple[Kind, str]:
        """What became of a test, and why."""
        found = result(name)
        return found.kind, found.why


def results(names: Sequence[str]) -> Iterator[Result]:
    """What becomes of each, in a process that is started anew where one ends or hangs."""
    child: Child | None = None
    try:
        for name in names:
            if child is None or not child.alive:
                child = Child(f"{__name__}:Runner")
                started = child.ready(_START_S)
                assert isinstance(started, Returned), started
            outcome = child.call("result", name, deadline_s=_EACH_S)
            if isinstance(outcome, Returned):
                yield Result(name, *outcome.value)
            else:
                yield Result(name, "crashed", str(outcome))
    finally:
        if child is not None:
            child.kill()
