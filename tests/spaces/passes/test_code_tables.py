"""Codes of four bits become floats by a table, where vectors of them lie in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spaces.lowering.weights.codes import take_code
from spaces.passes.pipeline import tir_pipeline
from spaces.targets.target import parse_target, resolve_target
from tests.spaces.templates.contraction.test_pair_products import assembly

pytestmark = pytest.mark.tvm

WIDE = '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":1}'
NARROW = '{"kind":"llvm","mcpu":"haswell","num-cores":1}'
LOOKED_UP, CONVERTED = ("vpermd", "vpermps"), "vcvtdq2ps"
DEPTH, COLUMNS = 16, 32

Place = Callable[[Any, Any], tuple[Any, Any]]
Number = Callable[[Any, Any, Any], Any]


def in_words(k: Any, n: Any) -> tuple[Any, Any]:
    return k // 8, n * 4 + k % 8 // 2


def in_bytes(k: Any, n: Any) -> tuple[Any, Any]:
    return k // 2, n


def middle_off(code: Any, k: Any, n: Any) -> Any:
    return code - 8.0


def as_it_is(code: Any, k: Any, n: Any) -> Any:
    return code


def of_no_whole_middle(code: Any, k: Any, n: Any) -> Any:
    return code - 7.5


def scale(code: Any, k: Any, n: Any) -> Any:
    return (code - 8.0) * ((k % 4).astype("float32") + 1.0)


def of_row(k: Any, n: Any) -> Any:
    return k % 2


def of_column(k: Any, n: Any) -> Any:
    return n % 2


def make_floats(
    place: Place = in_words,
    number: Number = middle_off,
    lanes: int = 16,
    which: Callable[[Any, Any], Any] = of_row,
) -> Any:
    """A program that makes floats of codes, its columns in vectors of so many lanes.

    Args:
        which: of the two codes of a byte is taken.
    """
    import tvm
    from tvm import te
    from tvm.s_tir import Schedule

    shape = (DEPTH // 8, COLUMNS * 4) if place is in_words else (DEPTH // 2, COLUMNS)
    packed = te.placeholder(shape, "uint8", name="packed")

    def element(k: Any, n: Any) -> Any:
        byte = packed[place(k, n)].astype("int32")
        return number(take_code(byte, "int32", which(k, n), 4).astype("float32"), k, n)

    made = te.compute((DEPTH, COLUMNS), element, name="made")
    program = te.create_prim_func([packed, made]).with_attr("global_symbol", "main")
    schedule = Schedule(tvm.IRModule({"main": program}))
    steps, columns = schedule.get_loops(schedule.get_sblock("made"))
    schedule.vectorize(schedule.split(columns, [None, lanes])[1])
    schedule.unroll(steps)
    return schedule.mod


def looks_up(code: str) -> bool:
    return any(name in code for name in LOOKED_UP)


@pytest.mark.parametrize("number", [middle_off, as_it_is, of_no_whole_middle, scale])
def test_codes_of_words_are_looked_up_and_not_converted(number: Number) -> None:
    code = assembly(make_floats(number=number), WIDE)
    assert looks_up(code)
    assert CONVERTED not in code


@pytest.mark.parametrize(
    ("module", "target"),
    [
        (lambda: make_floats(), NARROW),
        (lambda: make_floats(lanes=8), WIDE),
        (lambda: make_floats(place=in_bytes), WIDE),
        (lambda: make_floats(which=of_column), WIDE),
    ],
    ids=["no instruction", "other lanes", "bytes apart", "codes of lanes"],
)
def test_others_are_converted(module: Callable[[], Any], target: str) -> None:
    code = assembly(module(), target)
    assert CONVERTED in code
    assert not looks_up(code)


@pytest.mark.each_value
@pytest.mark.parametrize("number", [middle_off, as_it_is, of_no_whole_middle, scale])
@pytest.mark.parametrize("place", [in_words, in_bytes])
@pytest.mark.parametrize("lanes", [8, 16])
def test_floats_are_those_of_the_codes(place: Place, number: Number, lanes: int) -> None:
    import tvm

    module = make_floats(place, number, lanes)
    here = parse_target(resolve_target("llvm", cores=1))
    library = tvm.compile(module, target=here, tir_pipeline=tir_pipeline(here))
    shape = [int(size) for size in module["main"].params[0].ty.shape]
    packed = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    k, n = np.meshgrid(np.arange(DEPTH), np.arange(COLUMNS), indexing="ij")
    codes = (packed[place(k, n)] >> (4 * (k % 2))) & 15
    made = tvm.runtime.tensor(np.full((DEPTH, COLUMNS), np.nan, "float32"))
    library["main"](tvm.runtime.tensor(packed), made)
    np.testing.assert_array_equal(made.numpy(), number(codes.astype("float32"), k, n))
