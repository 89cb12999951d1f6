"""Outputs are compared where they are: with the same verdicts as in host memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.check.case import Case, Draw
from spaces.check.draws import Argument
from spaces.check.sampled_case import SampledCase
from spaces.check.sampled_program import Sample
from spaces.devices.checker import HostChecker
from spaces.devices.device_checker import DeviceChecker
from spaces.ir.element_types import numpy_dtype
from spaces.targets.target import device_of, resolve_target

pytestmark = pytest.mark.tvm

TARGETS = [
    pytest.param("llvm", id="cpu"),
    pytest.param("cuda", id="cuda", marks=pytest.mark.gpu),
]
FLOATS = ("float16", "bfloat16", "float32", "float64")
SHAPE = (3, 70_000)


def case(dtype: str, bounded: bool, shape: tuple[int, ...] = SHAPE) -> Case:
    """One input, and one output that should be the input's values."""
    kind = numpy_dtype(dtype)
    values = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, shape)
    data = values.astype(kind)
    arguments = (Argument("x", shape, dtype, False), Argument("y", shape, dtype, True))
    bound = np.full(shape, 0.5) if bounded else None
    return Case(arguments, (data, None), {1: data}, {1: bound})


@pytest.fixture(params=TARGETS)
def checkers(request: pytest.FixtureRequest) -> tuple[Any, DeviceChecker, HostChecker]:
    target = resolve_target(request.param)
    device = device_of(target)
    return device, DeviceChecker(device, target, 1 << 30), HostChecker(device, target)


def written(checker: Any, device: Any, of: Draw, output: Any, overwrite: Any = None) -> str:
    """The verdict on a kernel that writes an output, and perhaps its input."""
    import tvm

    x, y = tensors = checker.feed(of)
    y.copyfrom(tvm.runtime.tensor(output, device))
    if overwrite is not None:
        x.copyfrom(tvm.runtime.tensor(overwrite, device))
    return str(checker.wrong(of, tensors))


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("bounded", [False, True])
def test_one_wrong_element_anywhere_is_seen(checkers: Any, dtype: str, bounded: bool) -> None:
    if dtype == "bool" and bounded:
        bounded = False
    device, on_device, on_host = checkers
    of = case(dtype, bounded)
    right = of.outputs[1]
    assert written(on_device, device, of, right) == ""
    for place in ((0, 0), (1, 31_234), (2, SHAPE[1] - 1)):
        spoilt = right.copy()
        spoilt[place] = not right[place] if dtype == "bool" else right[place] + 1
        verdicts = {written(each, device, of, spoilt) for each in (on_device, on_host)}
        assert len(verdicts) == 1, verdicts
        assert str(place[1]) in verdicts.pop()
        assert written(on_device, device, of, right) == "", "the next kernel is judged by itself"


@pytest.mark.parametrize("dtype", FLOATS)
def test_within_its_bound_an_element_is_right(checkers: Any, dtype: str) -> None:
    device, on_device, on_host = checkers
    of = case(dtype, True)
    near = (of.outputs[1].astype("float64") + 0.25).astype(of.outputs[1].dtype)
    assert written(on_device, device, of, near) == written(on_host, device, of, near) == ""


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bounded", [False, True])
def test_what_is_not_finite_must_be_the_same(checkers: Any, dtype: str, bounded: bool) -> None:
    device, on_device, on_host = checkers
    of = case(dtype, bounded)
    want = of.outputs[1]
    want[0, :3] = [np.nan, np.inf, -np.inf]
    assert written(on_device, device, of, want) == ""
    for value in (np.nan, np.inf, -np.inf, 1.0):
        for place in range(4):
            got = want.copy()
            got[0, place] = value
            pair = [written(each, device, of, got) for each in (on_device, on_host)]
            assert pair[0] == pair[1]


def test_an_input_that_was_overwritten_is_seen_bit_by_bit(checkers: Any) -> None:
    device, on_device, _ = checkers
    of = case("float32", False)
    changed = of.fresh(0).copy()
    changed[1, 5] = np.nextafter(changed[1, 5], np.float32(1e9))
    said = written(on_device, device, of, of.outputs[1], overwrite=changed)
    assert said == "it overwrote its input x"
    assert written(on_device, device, of, of.outputs[1]) == ""


def test_an_output_that_was_not_written_is_seen(checkers: Any) -> None:
    _, on_device, _ = checkers
    of = case("float32", True)
    assert "NaN" in on_device.wrong(of, on_device.feed(of)) or "finite" in on_device.wrong(
        of, on_device.feed(of)
    )


def test_a_kernel_that_changed_what_is_compared_with_spoils_no_verdict(checkers: Any) -> None:
    device, on_device, _ = checkers
    of = case("float32", False)
    on_device.feed(of)
    sent = on_device._sent[id(of)]
    zeros = np.zeros(of.outputs[1].size, np.float32)
    sent.expected[1].want.copyfrom(zeros)
    assert written(on_device, device, of, of.outputs[1]) == ""
    assert written(on_device, device, of, of.outputs[1] + 1) != ""


def test_draws_leave_the_device_when_they_are_too_many(checkers: Any) -> None:
    device, on_device, _ = checkers
    size_bytes = 4 * SHAPE[0] * SHAPE[1]
    few = DeviceChecker(device, on_device._target, 12 * size_bytes)
    cases = [case("float32", False) for _ in range(6)]
    for of in cases:
        assert written(few, device, of, of.outputs[1]) == ""
    assert len(few._sent) == 2
    assert written(few, device, cases[0], cases[0].outputs[1]) == ""


@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (255,), (65537,)])
def test_any_shape_can_be_compared(checkers: Any, shape: tuple[int, ...]) -> None:
    device, on_device, _ = checkers
    of = case("float32", True, shape)
    assert written(on_device, device, of, of.outputs[1]) == ""


def test_of_a_large_output_some_elements_are_compared_until_a_kernel_was_judged(
    checkers: Any,
) -> None:
    device, on_device, on_host = checkers
    for checker in (on_device, on_host):
        of = case("float32", True)
        want = of.outputs[1]
        places = (np.array([0, 2]), np.array([0, 31_234]))

        def compute(wanted: Any, want: Any = want) -> dict[int, Sample]:
            where = np.ix_(*wanted[1])
            return {1: Sample(wanted[1], want[where], np.full(want[where].shape, 0.5))}

        some = SampledCase(Case(of.arguments, of.initial, {}, {}), compute({1: places}), compute)
        known, unknown = want.copy(), want.copy()
        known[2, 31_234] += 1
        unknown[1, 5] += 50
        assert written(checker, device, some, known) != ""
        assert written(checker, device, some, unknown) == ""
        assert written(checker, device, some, want, overwrite=want + 1).startswith("it overwrote")
        some.keep(b"right", {1: want.copy()})
        assert written(checker, device, some, want) == ""
        for spoilt in (known, unknown):
            assert written(checker, device, some, spoilt) != ""
        assert written(checker, device, some, want) == ""
