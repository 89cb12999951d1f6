"""Products of floats of 8 bits: which programs have them, how near they come on numbers that are
hard, and what the compiler makes of them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from spaces.check.reference import reference
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.ir.schedules import task_module
from spaces.targets.target import emulate_target
from spaces.templates.registry import templates_of
from tests.needed import needs_nvcc
from tests.spaces.templates.open_programs import names
from tests.spaces.templates.tensor_cores.byte_float_products import (
    ADA,
    E4M3,
    E5M2,
    PROGRAMS,
    ROUGH,
    matmul,
)
from tests.spaces.templates.tensor_cores.products import (
    AMPERE,
    HOPPER,
    Program,
    Sizes,
    operands_of,
    sums_of,
    task_with,
)
from tests.spaces.templates.tensor_cores.test_hopper_template import compile_setting, disassemble
from tuner.candidate import of_knobs

pytestmark = pytest.mark.tvm

Array = npt.NDArray[Any]
HALVES = "kernel:ada-fp8-as-f16-product-1"
WARPS, WARPGROUPS = "kernel:ada-fp8-product-1", "kernel:hopper-fp8-product-2"
BLACKWELL = emulate_target('{"kind":"cuda","arch":"sm_100a"}')
KINDS = {E4M3: ml_dtypes.float8_e4m3fn, E5M2: ml_dtypes.float8_e5m2}
M, N = 24, 40


def names_of(program: Program, sizes: Sizes, target: str = ADA) -> list[str]:
    return names(task_with(program, sizes, target))


# ---- what has it


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_in_any_layout_are_made_of_halves(name: str) -> None:
    program, every = PROGRAMS[name]
    for sizes in every:
        assert names_of(program, sizes) == names_of(program, sizes, HOPPER) == [HALVES]
        assert not [name for name in names_of(program, sizes, AMPERE) if "-product-" in name]


@pytest.mark.parametrize("name", ROUGH)
def test_sums_in_bfloat16_are_left_to_instructions_on_8_bits_where_there_are_such(
    name: str,
) -> None:
    program, every = ROUGH[name]
    for sizes in every:
        assert names_of(program, sizes) == [WARPS]
        assert names_of(program, sizes, HOPPER) == [WARPGROUPS]
        assert names_of(program, sizes, BLACKWELL) == [HALVES]


def test_warpgroups_multiply_only_terms_that_lie_next_to_one_another() -> None:
    assert names_of(lambda s: matmul(s, sums="bfloat16"), Sizes(64, 64, 64), HOPPER) == [HALVES]
    assert names_of(lambda s: matmul(s, sums="bfloat16"), Sizes(64, 64, 64)) == [WARPS]


def test_products_that_are_rounded_before_they_are_summed_are_left_to_others() -> None:
    def rounded(s: Sizes) -> Any:
        from tvm import te

        a, b = operands_of(s, True, False, E4M3, E4M3)
        r = te.reduce_axis((0, s.k), "r")

        def term(i: Any, j: Any) -> Any:
            product = a[i, r].astype("bfloat16") * b[j, r].astype("bfloat16")
            return te.sum(product.astype("float32"), r)

        return te.create_prim_func([a, b, te.compute((s.m, s.n), term, "c")])

    def by_whole_numbers(s: Sizes) -> Any:
        from tvm import te

        a, b = operands_of(s, True, False, E4M3, "int8")
        return te.create_prim_func([a, b, sums_of(a, b, True, False)])

    for program in (rounded, by_whole_numbers):
        assert names_of(program, Sizes(64, 64, 64)) == []


# ---- how near it comes


@cache
def kernel_for(target: str, sums: str, terms: int, kinds: tuple[str, str]) -> Any:
    """The best predicted kernel of A by B, whose terms lie next to one another."""
    sizes = Sizes(M, N, terms)
    task = task_with(lambda s: matmul(s, nt=True, kinds=kinds, sums=sums), sizes, target)
    template = next(t for t in templates_of(task) if "-product-" in t.name)
    space = KnobSpace(task, template)
    module = space.write(of_knobs(space.ranked[0], template.name)).mod
    return load_kernel(build_artifact(module, target))


def multiply(kernel: Any, a: Array, b: Array, sums: str) -> Array:
    import tvm

    kind = np.dtype(getattr(ml_dtypes, sums, None) or sums)
    tensors = [tvm.runtime.tensor(x) for x in (a, b, np.full((M, N), 7, kind))]
    kernel.module["main"](*tensors)
    found: Array = tensors[2].numpy().astype(np.float64)
    return found


def normal(rng: np.random.Generator, shape: tuple[int, ...], _most: float) -> Array:
    return rng.standard_normal(shape)


def same(rng: np.random.Generator, shape: tuple[int, ...], _most: float) -> Array:
    return np.full(shape, 1.125)


def same_signs(rng: np.random.Generator, shape: tuple[int, ...], _most: float) -> Array:
    return rng.uniform(0.5, 1, shape)


def opposite(rng: np.random.Generator, shape: tuple[int, ...], _most: float) -> Array:
    """Numbers of which the other half takes back the one."""
    found = rng.uniform(0.5, 1, shape)
    half = shape[1] // 2
    found[:, half : 2 * half] = -found[:, :half]
    return found


def many_sizes(rng: np.random.Generator, shape: tuple[int, ...], most: float) -> Array:
    low = -9 if most < 500 else -16
    return rng.standard_normal(shape) * 2.0 ** rng.uniform(low, np.log2(most) - 2, shape)


def tiny_or_large(rng: np.random.Generator, shape: tuple[int, ...], most: float) -> Array:
    """Numbers of no more than a few steps, and others near the largest."""
    low = 2.0**-9 if most < 500 else 2.0**-16
    small, large = low * rng.integers(1, 8, shape), most * rng.uniform(0.1, 1, shape)
    return np.where(rng.random(shape) < 0.9, small, large) * rng.choice([-1, 1], shape)


DRAWS = (normal, same, same_signs, opposite, many_sizes, tiny_or_large)


def least_allowed(a: Array, b: Array, eps: float) -> Array:
    """What `spaces.check.error_bounds` allows a sum of exact terms, at least."""
    total, squares, terms = a @ b.T, (a * a) @ (b * b).T, a.shape[1]
    order = 2 * np.sqrt(terms * (total**2 / 3 + squares / 6))
    found: Array = eps * (order + np.sqrt(terms * squares))
    return found


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("target", "sums", "eps"),
    [(ADA, "float32", 2.0**-23), (ADA, "bfloat16", 2.0**-7), (HOPPER, "bfloat16", 2.0**-7)],
    ids=["halves", "warps", "warpgroups"],
)
@pytest.mark.parametrize("terms", [5, 32, 77, 1024])
@pytest.mark.parametrize("kinds", [(E4M3, E4M3), (E5M2, E4M3)], ids=["e4m3", "e5m2"])
def test_errors_are_within_what_the_type_of_the_sums_is_allowed(
    kinds: tuple[str, str], terms: int, target: str, sums: str, eps: float
) -> None:
    kernel = kernel_for(target, sums, terms, kinds)
    for draw in DRAWS:
        rng = np.random.default_rng(terms)
        a, b = (
            draw(rng, (rows, terms), 448 if kind == E4M3 else 57344).astype(KINDS[kind])
            for rows, kind in zip((M, N), kinds, strict=True)
        )
        real = [x.astype(np.float64) for x in (a, b)]
        error = np.abs(multiply(kernel, a, b, sums) - real[0] @ real[1].T)
        share = error / np.maximum(least_allowed(*real, eps), 1e-30)
        assert share.max() <= 1, (draw.__name__, share.max())


@pytest.mark.parametrize(("sums", "eps"), [("float32", 2.0**-23), ("bfloat16", 2.0**-7)])
def test_the_check_allows_no_less_than_that(sums: str, eps: float) -> None:
    task = task_with(lambda s: matmul(s, nt=True, sums=sums), Sizes(M, N, 200), ADA)
    for case in reference(task_module(task.module), "seed").cases:
        a, b = (case.fresh(i).astype(np.float64) for i in range(2))
        bound = case.bounds[2]
        assert bound is not None
        assert np.all(bound >= 0.999 * least_allowed(a, b, eps))


@pytest.mark.each_value
@pytest.mark.parametrize("target", [ADA, HOPPER], ids=["ada", "hopper"])
@pytest.mark.parametrize("sums", ["float32", "bfloat16"])
def test_what_is_not_finite_comes_out_as_in_the_program(sums: str, target: str) -> None:
    rng = np.random.default_rng(2)
    kinds = (E5M2, E4M3)
    a, b = (
        normal(rng, (rows, 77), 1).astype(KINDS[k]) for rows, k in zip((M, N), kinds, strict=True)
    )
    a[3, 5], a[17, 70], b[2, 60], a[9, 0], b[11, 0] = np.inf, -np.inf, np.nan, np.inf, 0
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64).T
    got = multiply(kernel_for(target, sums, 77, kinds), a, b, sums)
    assert np.array_equal(np.isnan(got), np.isnan(exact))
    assert np.array_equal(got[np.isinf(exact)], exact[np.isinf(exact)])
    assert np.isinf(exact[3]).any()


# ---- what the compiler makes of it


@needs_nvcc
@pytest.mark.parametrize(
    ("programs", "name", "target", "multiplied"),
    [
        (PROGRAMS, "NT", ADA, r"HMMA\.16816\.F32"),
        (PROGRAMS, "NN", HOPPER, r"HMMA\.16816\.F32"),
        (ROUGH, "NT", ADA, r"QMMA\.16832\.F32\.E4M3\.E4M3"),
        (ROUGH, "NT", HOPPER, r"QGMMA\.64x\d+x32\.F32\.E4M3\.E4M3"),
        (ROUGH, "odd", ADA, r"QMMA\.16832\.F32\.(E4M3\.E5M2|E5M2\.E4M3)"),
        (ROUGH, "requantized", HOPPER, r"QGMMA\.64x\d+x32\.F32\.E4M3\.E4M3"),
    ],
)
def test_the_best_predicted_multiply_as_they_say_and_spill_nothing(
    programs: Any, name: str, target: str, multiplied: str, tmp_path: Path
) -> None:
    task = task_with(programs[name][0], Sizes(4096, 4096, 4096), target)
    space = KnobSpace(task, templates_of(task)[0])
    source = compile_setting(space, space.ranked[0], target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, {ADA: "sm_89", HOPPER: "sm_90a"}[target])
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    assembly = disassemble(code.binary, tmp_path)
    found = re.findall(r"[HQ]G?MMA\.[\w.]+", assembly)
    assert found
    assert all(re.fullmatch(multiplied + r".*", one) for one in found)
    widened = re.findall(r"F2FP\.F16\.E4M3\.UNPACK_B", assembly)
    assert bool(widened) == (programs is PROGRAMS)
    assert len(widened) <= 1.5 * len(found)  # once for each factor, not for each product
    assert "LDS.U8" not in assembly
    assert ("FADD" in assembly) == (programs is ROUGH)
