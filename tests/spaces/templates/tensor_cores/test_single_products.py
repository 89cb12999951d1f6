"""Products in single precision as three of TF32: how near they come, on numbers that are hard, and
what the compiler makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.ir.element_types import eps_of
from spaces.templates.registry import templates_of
from spaces.templates.tensor_cores.elements.single_fragments import LEAST_TERMS, MOST
from tests.needed import needs_nvcc
from tests.spaces.templates.few_rows.few_row_programs import matmul
from tests.spaces.templates.tensor_cores import single_products
from tests.spaces.templates.tensor_cores.products import (
    AMPERE,
    HOPPER,
    Program,
    Sizes,
    task_with,
)
from tests.spaces.templates.tensor_cores.test_hopper_template import compile_setting, disassemble
from tuner.candidate import of_knobs

pytestmark = pytest.mark.tvm

Array = npt.NDArray[Any]
NAME = "kernel:ampere-tf32x3-product-1"
_EPS = eps_of("float32")
_TINY = 4.7e-26
"""What `spaces.check.errors.shadows` allows a term whose square underflows."""
M, N = 24, 40


def space_of(
    sizes: Sizes, program: Program = single_products.matmul, target: str = AMPERE
) -> KnobSpace:
    task = task_with(program, sizes, target)
    return KnobSpace(task, next(t for t in templates_of(task) if t.name == NAME))


@cache
def kernel_for(terms: int, turned: bool) -> Callable[[Array, Array], Array]:
    """A kernel that multiplies A by B, both with rows as they are, or both turned."""
    import tvm

    sizes = Sizes(M, N, terms)

    def program(s: Sizes) -> Any:
        return single_products.matmul(s, nt=not turned, tn=turned)

    space = space_of(sizes, program)
    module = space.write(of_knobs(space.ranked[0], NAME)).mod
    kernel = load_kernel(build_artifact(module, AMPERE))

    def multiply(a: Array, b: Array) -> Array:
        stored = (a.T, b) if turned else (a, b.T)
        out = np.full((M, N), 7, np.float32)
        tensors = [tvm.runtime.tensor(np.ascontiguousarray(x)) for x in (*stored, out)]
        kernel.module["main"](*tensors)
        found: Array = tensors[2].numpy()
        return found

    return multiply


def allowed(a: Array, b: Array) -> Array:
    """What `spaces.check.error_bounds` allows a sum in single precision."""
    terms = a.shape[1]
    total, squares = a @ b, (a * a) @ (b * b)
    order = np.sqrt(terms * (total**2 / 3 + squares / 6))
    bound: Array = _EPS * (2 * order + np.sqrt(terms * squares)) + _TINY * terms
    return bound


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def same_signs(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.5, 1, shape)


def opposite(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of which the other half nearly takes back the one."""
    found = rng.uniform(1, 2, shape)
    half = shape[1] // 2
    found[:, half : 2 * half] = -found[:, :half] * (1 + 2e-7)
    return found


def many_sizes(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape) * 2.0 ** rng.uniform(-80, 39, shape)


def tiny_or_large(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers down to the least, and others up to where they still have rests."""
    small = 2.0 ** rng.uniform(-149, -110, shape)
    large = MOST * rng.uniform(0.5, 1 - 1e-6, shape)
    return np.where(rng.random(shape) < 0.5, small, large) * rng.choice([-1, 1], shape)


def hardest_bits(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The number whose product by itself three products of TF32 miss by most, all of one sign."""
    return np.full(shape, 1 + 2.0**-10 - 2.0**-11 + 2.0**-23)


def few(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Mostly zeros."""
    return rng.standard_normal(shape) * (rng.random(shape) < 2 / shape[1])


def too_large(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Some of the largest, which TF32 rounds to infinity, by numbers that make little of them."""
    small = rng.standard_normal(shape) * 1e-8
    largest = np.float64(np.finfo(np.float32).max)
    return np.where(rng.random(shape) < 0.01, largest, small)


DRAWS = (
    normal,
    same_signs,
    opposite,
    many_sizes,
    tiny_or_large,
    hardest_bits,
    few,
)


@pytest.mark.each_value
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("terms", [LEAST_TERMS, 77, 2048])
@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: draw.__name__)
def test_errors_are_within_what_single_precision_is_allowed(
    draw: Callable[..., Array], terms: int, turned: bool
) -> None:
    rng = np.random.default_rng(terms)
    a, b = draw(rng, (M, terms)).astype(np.float32), draw(rng, (N, terms)).T.astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    got = kernel_for(terms, turned)(a, b)
    bound = allowed(a.astype(np.float64), b.astype(np.float64))
    assert np.all(np.abs(got - exact) <= bound), (np.abs(got - exact) / bound).max()


def test_the_bound_tells_three_products_from_one() -> None:
    rng = np.random.default_rng(0)
    a, b = (normal(rng, shape).astype(np.float32) for shape in ((M, 77), (77, N)))
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b)]
    one = cut[0].astype(np.float64) @ cut[1].astype(np.float64)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    beyond = np.abs(one - exact) > allowed(a.astype(np.float64), b.astype(np.float64))
    assert beyond.mean() > 0.9


@pytest.mark.parametrize("turned", [False, True])
def test_the_largest_numbers_do_not_become_infinite(turned: bool) -> None:
    rng = np.random.default_rng(1)
    a = too_large(rng, (M, 77)).astype(np.float32)
    b = (normal(rng, (77, N)) * 1e-8).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(exact).max() > 1e29
    error = np.abs(kernel_for(77, turned)(a, b) - exact)
    assert np.all(error <= allowed(a.astype(np.float64), b.astype(np.float64)))


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_not_finite_comes_out_as_in_single_precision(turned: bool) -> None:
    rng = np.random.default_rng(2)
    a, b = (normal(rng, shape).astype(np.float32) for shape in ((M, 77), (77, N)))
    a[3, 5], a[17, 70], b[60, 2] = np.inf, -np.inf, np.nan
    a[9, 0], b[0, 11] = np.inf, 0
    b[5, 7] = 1  # whose rest is 0, by which infinity is NaN
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    got = kernel_for(77, turned)(a, b)
    assert np.array_equal(np.isnan(got), np.isnan(exact))
    assert np.array_equal(np.isinf(got), np.isinf(exact))
    assert np.isinf(exact[3, 7])
    assert np.isnan(exact[9, 11])
    infinite, finite = np.isinf(exact), np.isfinite(exact)
    assert np.array_equal(np.sign(got[infinite]), np.sign(exact[infinite]))
    np.testing.assert_allclose(got[finite], exact[finite], rtol=1e-4, atol=1e-5)


# ---- what has it


def names(sizes: Sizes, target: str = AMPERE, **how: bool) -> list[str]:
    program = single_products.matmul(sizes, **how)
    task = task_with(lambda _: program, sizes, target)
    return [t.name for t in templates_of(task)]


def test_products_of_few_terms_or_of_an_open_number_have_other_spaces() -> None:
    assert NAME in names(Sizes(64, 64, LEAST_TERMS))
    assert NAME not in names(Sizes(64, 64, LEAST_TERMS - 1))
    assert NAME in names(Sizes("m", 64, 64))
    assert NAME not in names(Sizes("m", 64, 64), tn=True, target='{"kind":"cuda","arch":"sm_75"}')
    assert NAME in names(Sizes(64, 64, 64), HOPPER)


def test_sums_in_a_wider_type_are_left_to_others() -> None:
    from tests.spaces.templates.tensor_cores.products import operands_of, sums_of

    def wide(s: Sizes) -> Any:
        from tvm import te

        a, b = operands_of(s, True, False, "float32", "float32")
        return te.create_prim_func([a, b, sums_of(a, b, True, False, "float64")])

    found = templates_of(task_with(wide, Sizes(64, 64, 64), AMPERE))
    assert not [t for t in found if t.name in (NAME, "kernel:few-rows-1")]


# ---- what the compiler makes of it


LAYOUTS: Mapping[str, Mapping[str, bool]] = {"NT": {"nt": True}, "NN": {}, "TN": {"tn": True}}


ODD, LARGE = Sizes(1000, 3000, 777), Sizes(4096, 4096, 4096)


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "sizes", "target"),
    [*((name, ODD, AMPERE) for name in LAYOUTS), ("NN", LARGE, HOPPER)],
    ids=[*LAYOUTS, "NN on Hopper"],
)
def test_the_best_predicted_multiply_three_times_and_spill_nothing(
    name: str, sizes: Sizes, target: str, tmp_path: Path
) -> None:
    def with_sizes_of_a_graph(s: Sizes) -> Any:
        return matmul(s.m, s.n, s.k, kind="float32", **LAYOUTS[name])  # of 64 bits

    space = space_of(sizes, with_sizes_of_a_graph, target)
    best = space.ranked[0]
    source = compile_setting(space, best, target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_80" if target == AMPERE else "sm_90a")
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    assembly = disassemble(code.binary, tmp_path)
    assert {*re.findall(r"HMMA\.[\w.]+", assembly)} == {"HMMA.1688.F32.TF32"}
    tiles = best["row_parts"] * 2 * best["column_parts"]
    assert len(re.findall("HMMA", assembly)) % (3 * tiles) == 0
    assert "LDGSTS" in assembly
